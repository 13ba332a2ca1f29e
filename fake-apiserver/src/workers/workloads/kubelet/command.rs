//! Commands whose end is known without running them: `true`, `false`, `echo`, `sleep N`, `exit N`, and scripts of a
//! shell that are made of nothing else.

use crate::api::json::Map;

use std::time::Duration;

/// Runtime of a command that ends at once, so that it is seen to run.
pub(super) const AT_ONCE: Duration = Duration::from_secs(1);

/// Returns the runtime and the exit code of a container, if its command determines them.
pub(super) fn known_end(container: &Map) -> Option<(Duration, i32)> {
    let words = |field: &str| -> Vec<&str> {
        let list = container.get(field).and_then(|it| it.as_array());
        list.into_iter().flatten().filter_map(|it| it.as_str()).collect()
    };
    let mut words = words("command");
    if words.is_empty() {
        // The image's own command, of which nothing is known.
        return None;
    }
    let args = container.get("args").and_then(|it| it.as_array());
    words.extend(args.into_iter().flatten().filter_map(|it| it.as_str()));
    let (time, code) = match words.as_slice() {
        [shell, flag @ ("-c" | "-ec" | "-ce" | "-exc" | "-xc"), script, ..] if is_shell(shell) => {
            script_end(script, flag.contains('e'))?
        }
        words => simple_end(words)?,
    };
    Some((time.max(AT_ONCE), code))
}

fn is_shell(program: &str) -> bool {
    matches!(name(program), "sh" | "bash" | "ash" | "dash")
}

/// A program without its folder.
fn name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// The end of one command.
fn simple_end(words: &[&str]) -> Option<(Duration, i32)> {
    match words {
        [program, ..] if matches!(name(program), "true" | "echo" | ":") => Some((Duration::ZERO, 0)),
        [program, ..] if name(program) == "false" => Some((Duration::ZERO, 1)),
        [program, time] if name(program) == "sleep" => Some((sleep(time)?, 0)),
        _ => None,
    }
}

/// The time `sleep` takes: a number, perhaps with a unit.
fn sleep(text: &str) -> Option<Duration> {
    let (number, unit) = match text.char_indices().last()? {
        (at, 's') => (&text[..at], 1.0),
        (at, 'm') => (&text[..at], 60.0),
        (at, 'h') => (&text[..at], 3600.0),
        (at, 'd') => (&text[..at], 86_400.0),
        _ => (text, 1.0),
    };
    let number: f64 = number.parse().ok()?;
    Duration::try_from_secs_f64(number * unit).ok()
}

/// Returns the end of a shell's script, if each of its commands is known. Any syntax that could give one of them
/// another meaning makes the end unknown.
fn script_end(script: &str, mut stops_at_failure: bool) -> Option<(Duration, i32)> {
    if script.contains([
        '$', '`', '|', '>', '<', '(', ')', '{', '}', '*', '?', '\\', '#', '!', '[',
    ]) {
        return None;
    }
    let script = script.replace("&&", "\u{1}\n");
    if script.contains('&') {
        return None;
    }
    let (mut time, mut code, mut skips) = (Duration::ZERO, 0, false);
    for line in script.split(['\n', ';']) {
        let (line, and) = match line.strip_suffix('\u{1}') {
            Some(line) => (line, true),
            None => (line, false),
        };
        let words: Vec<&str> = line.split_whitespace().collect();
        let skipped = std::mem::replace(&mut skips, false);
        if words.is_empty() {
            continue;
        }
        if skipped {
            skips = and;
            continue;
        }
        match words.as_slice() {
            ["exit"] => return Some((time, code)),
            ["exit", number] => return Some((time, number.parse::<i32>().ok()? & 0xff)),
            ["set", "-e"] => (stops_at_failure, code) = (true, 0),
            words => {
                let (more, end) = simple_end(words)?;
                (time, code) = (time.checked_add(more)?, end);
            }
        }
        if code != 0 && stops_at_failure && !and {
            return Some((time, code));
        }
        skips = and && code != 0;
    }
    Some((time, code))
}

#[cfg(test)]
mod tests {
    use crate::api::json::json;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::nothing_known(json!([]), json!([]), None)]
    #[case::arguments_of_an_unknown_program(json!([]), json!(["true"]), None)]
    #[case::a_server(json!(["nginx"]), json!([]), None)]
    #[case::truth(json!(["/bin/true"]), json!([]), Some((1.0, 0)))]
    #[case::falsehood(json!(["false"]), json!([]), Some((1.0, 1)))]
    #[case::words(json!(["echo", "hello"]), json!([]), Some((1.0, 0)))]
    #[case::sleep(json!(["sleep"]), json!(["30"]), Some((30.0, 0)))]
    #[case::a_long_sleep(json!(["sleep", "1.5h"]), json!([]), Some((5400.0, 0)))]
    #[case::for_ever(json!(["sleep", "infinity"]), json!([]), None)]
    #[case::an_exit(json!(["sh", "-c", "exit 3"]), json!([]), Some((1.0, 3)))]
    #[case::an_exit_as_arguments(json!(["/bin/bash", "-c"]), json!(["exit 300"]), Some((1.0, 44)))]
    #[case::one_after_the_other(json!(["sh", "-c", "echo hi; sleep 2 && sleep 3; exit 4"]), json!([]), Some((5.0, 4)))]
    #[case::not_reached(json!(["sh", "-c", "false && sleep 9; true"]), json!([]), Some((1.0, 0)))]
    #[case::the_last_counts(json!(["sh", "-c", "true\nfalse"]), json!([]), Some((1.0, 1)))]
    #[case::the_first_failure_ends(json!(["sh", "-ec", "false; sleep 9"]), json!([]), Some((1.0, 1)))]
    #[case::a_loop(json!(["sh", "-c", "while true; do sleep 1; done"]), json!([]), None)]
    #[case::a_variable(json!(["sh", "-c", "exit $CODE"]), json!([]), None)]
    #[case::in_the_background(json!(["sh", "-c", "sleep 9 & true"]), json!([]), None)]
    fn a_command_is_known_by_its_words(
        #[case] command: crate::api::json::Value,
        #[case] args: crate::api::json::Value,
        #[case] expected: Option<(f64, i32)>,
    ) {
        let container = json!({"command": command, "args": args});
        let found = known_end(container.as_object().expect("an object"));
        assert_eq!(found.map(|(time, code)| (time.as_secs_f64(), code)), expected);
    }
}
