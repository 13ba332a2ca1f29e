//! Commands with a predictable result: `true`, `false`, `echo`, `sleep N`, `exit N`, and shell scripts that consist of
//! these.

use crate::api::json::Map;

use std::time::Duration;

/// Duration of commands that would end immediately, so that their running state is observable.
pub(super) const AT_ONCE: Duration = Duration::from_secs(1);

/// Characters with a special meaning in an unquoted word of a shell.
const SYNTAX: [char; 13] = ['|', '>', '<', '(', ')', '{', '}', '*', '?', '#', '!', '[', '~'];

/// The duration, exit code and output of a container with a predictable command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KnownRun {
    pub(super) time: Duration,
    pub(super) exit_code: i32,
    /// The complete output.
    pub(super) output: String,
    /// Length of the output before the first `sleep`, in bytes.
    pub(super) at_once: usize,
}

/// Returns the duration, exit code and output of a container, if they follow from its command.
pub(super) fn known_run(container: &Map) -> Option<KnownRun> {
    let words = |field: &str| -> Vec<&str> {
        let list = container.get(field).and_then(|it| it.as_array());
        list.into_iter().flatten().filter_map(|it| it.as_str()).collect()
    };
    let mut words = words("command");
    let image = container.get("image").and_then(|it| it.as_str()).unwrap_or_default();
    if words.is_empty() && !runs_arguments(image) {
        // The command of the image is unknown to the server.
        return None;
    }
    let args = container.get("args").and_then(|it| it.as_array());
    words.extend(args.into_iter().flatten().filter_map(|it| it.as_str()));
    let mut run = KnownRun::default();
    match words.as_slice() {
        [shell, flag @ ("-c" | "-ec" | "-ce" | "-exc" | "-xc"), script, ..] if is_shell(shell) => {
            run.exit_code = run.follow_script(script, flag.contains('e'))?;
        }
        words => run.exit_code = run.follow(words)?,
    }
    run.time = run.time.max(AT_ONCE);
    if words.iter().any(|it| it.contains("$(")) {
        // The kubelet expands variables, but the simulation does not have their values.
        (run.output, run.at_once) = (String::new(), 0);
    }
    Some(run)
}

/// Returns `true` if the arguments of a container with this image are its command, because the image lacks an entry
/// point.
fn runs_arguments(image: &str) -> bool {
    let image = image.split('@').next().unwrap_or_default();
    let image = name(image).split(':').next().unwrap_or_default();
    matches!(image, "alpine" | "busybox" | "debian" | "ubuntu")
}

fn is_shell(program: &str) -> bool {
    matches!(name(program), "sh" | "bash" | "ash" | "dash")
}

/// Returns the name of a program without its directory.
fn name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

impl KnownRun {
    /// Simulates a command, and returns its exit code.
    fn follow(&mut self, words: &[&str]) -> Option<i32> {
        let (program, arguments) = words.split_first()?;
        match (name(program), arguments) {
            ("true" | ":", _) => Some(0),
            ("false", _) => Some(1),
            ("echo", arguments) => {
                let (end, arguments) = match arguments {
                    ["-n", rest @ ..] => ("", rest),
                    all => ("\n", all),
                };
                self.output += &arguments.join(" ");
                self.output += end;
                if self.time.is_zero() {
                    self.at_once = self.output.len();
                }
                Some(0)
            }
            ("sleep", [time]) => {
                self.time = self.time.checked_add(sleep(time)?)?;
                Some(0)
            }
            _ => None,
        }
    }

    /// Simulates a shell script if each of its commands is predictable, and returns its exit code.
    fn follow_script(&mut self, script: &str, mut stops_at_failure: bool) -> Option<i32> {
        let (mut code, mut skips) = (0, false);
        for command in commands(script)? {
            let and = command.ends_with_and;
            let words: Vec<&str> = command.words.iter().map(String::as_str).collect();
            if words.is_empty() {
                continue;
            }
            if std::mem::replace(&mut skips, false) {
                skips = and;
                continue;
            }
            match words.as_slice() {
                ["exit"] => return Some(code),
                ["exit", number] => return Some(number.parse::<i32>().ok()? & 0xff),
                ["set", "-e"] => (stops_at_failure, code) = (true, 0),
                words => code = self.follow(words)?,
            }
            if code != 0 && stops_at_failure && !and {
                return Some(code);
            }
            skips = and && code != 0;
        }
        Some(code)
    }
}

/// Parses the duration of `sleep`: a number with an optional unit.
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

/// A command of a shell script.
#[derive(Default)]
struct Command {
    words: Vec<String>,
    /// Set if the command is followed by `&&`.
    ends_with_and: bool,
}

/// Splits a script at `;`, `&&` and newlines. Returns `None` if it contains other syntax.
fn commands(script: &str) -> Option<Vec<Command>> {
    let (mut all, mut command) = (Vec::new(), Command::default());
    let mut word: Option<String> = None;
    let mut letters = script.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next()? {
                        end if end == letter => break,
                        '\\' => return None,
                        '$' | '`' if letter == '"' => return None,
                        inner => word.push(inner),
                    }
                }
            }
            '$' | '`' | '\\' => return None,
            letter if SYNTAX.contains(&letter) => return None,
            '&' if letters.next_if_eq(&'&').is_none() => return None,
            ';' | '\n' | '&' => {
                command.words.extend(word.take());
                command.ends_with_and = letter == '&';
                all.push(std::mem::take(&mut command));
            }
            letter if letter.is_whitespace() => command.words.extend(word.take()),
            letter => word.get_or_insert_default().push(letter),
        }
    }
    command.words.extend(word);
    all.push(command);
    Some(all)
}

#[cfg(test)]
mod tests {
    use crate::api::json::json;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::no_command(json!([]), json!([]), None)]
    #[case::arguments_of_an_unknown_program(json!([]), json!(["true"]), None)]
    #[case::server(json!(["nginx"]), json!([]), None)]
    #[case::true_command(json!(["/bin/true"]), json!([]), Some((1.0, 0)))]
    #[case::false_command(json!(["false"]), json!([]), Some((1.0, 1)))]
    #[case::echo(json!(["echo", "hello"]), json!([]), Some((1.0, 0)))]
    #[case::sleep(json!(["sleep"]), json!(["30"]), Some((30.0, 0)))]
    #[case::long_sleep(json!(["sleep", "1.5h"]), json!([]), Some((5400.0, 0)))]
    #[case::endless_sleep(json!(["sleep", "infinity"]), json!([]), None)]
    #[case::exit(json!(["sh", "-c", "exit 3"]), json!([]), Some((1.0, 3)))]
    #[case::exit_as_arguments(json!(["/bin/bash", "-c"]), json!(["exit 300"]), Some((1.0, 44)))]
    #[case::sequence_of_commands(json!(["sh", "-c", "echo hi; sleep 2 && sleep 3; exit 4"]), json!([]), Some((5.0, 4)))]
    #[case::command_after_a_failed_condition(json!(["sh", "-c", "false && sleep 9; true"]), json!([]), Some((1.0, 0)))]
    #[case::exit_code_of_the_last_command(json!(["sh", "-c", "true\nfalse"]), json!([]), Some((1.0, 1)))]
    #[case::first_failure_with_errexit(json!(["sh", "-ec", "false; sleep 9"]), json!([]), Some((1.0, 1)))]
    #[case::shell_loop(json!(["sh", "-c", "while true; do sleep 1; done"]), json!([]), None)]
    #[case::variable(json!(["sh", "-c", "exit $CODE"]), json!([]), None)]
    #[case::background_command(json!(["sh", "-c", "sleep 9 & true"]), json!([]), None)]
    #[case::quoted_separator(json!(["sh", "-c", "echo 'a; b' && exit 2"]), json!([]), Some((1.0, 2)))]
    #[case::open_quote(json!(["sh", "-c", "echo 'a"]), json!([]), None)]
    fn well_known_commands_are_recognised(
        #[case] command: crate::api::json::Value,
        #[case] args: crate::api::json::Value,
        #[case] expected: Option<(f64, i32)>,
    ) {
        let container = json!({"command": command, "args": args});
        let found = known_run(container.as_object().expect("the value is an object"));
        assert_eq!(found.map(|it| (it.time.as_secs_f64(), it.exit_code)), expected);
    }

    #[rstest]
    #[case::image_without_entrypoint("docker.io/library/busybox:1.36@sha256:1", true)]
    #[case::unknown_image("postgres:16", false)]
    #[case::name_with_a_known_prefix("busybox-extras", false)]
    fn args_are_the_command_only_if_the_image_has_no_entrypoint(#[case] image: &str, #[case] is_known: bool) {
        let container = json!({"image": image, "args": ["echo", "hi"]});
        assert_eq!(
            known_run(container.as_object().expect("the value is an object")).is_some(),
            is_known
        );
    }

    #[rstest]
    #[case::words("echo a  b", "a b\n", 4)]
    #[case::quotes("echo 'a  b' \"c;d\"", "a  b c;d\n", 9)]
    #[case::no_newline("echo -n a; echo b", "ab\n", 3)]
    #[case::output_after_a_sleep("echo a; sleep 5; echo b", "a\nb\n", 2)]
    #[case::output_of_a_skipped_command("false && echo a; echo b", "b\n", 2)]
    fn echo_writes_output(#[case] script: &str, #[case] output: &str, #[case] at_once: usize) {
        let container = json!({"command": ["sh", "-c", script]});
        let found =
            known_run(container.as_object().expect("the value is an object")).expect("the command is supported");
        assert_eq!((found.output.as_str(), found.at_once), (output, at_once));
    }
}
