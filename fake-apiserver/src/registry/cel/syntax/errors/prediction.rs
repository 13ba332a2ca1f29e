//! Adaptive prediction, modelled on ANTLR: chooses an edge of a state by looking at as many tokens as necessary. If the
//! result is ambiguous without the context of the enclosing rules, it is repeated with this context.

use std::rc::Rc;

use super::grammar::{Edge, Grammar, Kind};
use super::tokens::Placed;

/// The calls of rules that have not ended yet, innermost first.
pub(super) type Stack = Option<Rc<Frame>>;

/// A call of a grammar rule.
#[derive(Debug)]
pub(super) struct Frame {
    /// State in which parsing continues after the rule.
    pub(super) follow: usize,
    /// The calls of the enclosing rules.
    pub(super) outer: Stack,
}

/// A path through the grammar.
#[derive(Clone, Debug)]
struct Way {
    state: usize,
    /// Index of the first edge of the path.
    choice: usize,
    stack: Stack,
    /// Set if the path has left the rule that contains the choice.
    is_beyond: bool,
}

/// Error: no path through the grammar accepts the token.
pub(super) struct NoWay {
    /// Index of the token that no path accepts.
    pub(super) at: usize,
}

/// Chooses an edge of a state, by looking at the tokens from index `from`.
pub(super) fn choose(state: usize, stack: &Stack, tokens: &[Placed], from: usize) -> Result<usize, NoWay> {
    let search = Search {
        grammar: Grammar::get(),
        tokens,
        from,
    };
    match search.run(state, None)? {
        Some(choice) => Ok(choice),
        None => Ok(search.run(state, Some(stack))?.unwrap_or_default()),
    }
}

struct Search<'t> {
    grammar: &'static Grammar,
    tokens: &'t [Placed],
    from: usize,
}

impl Search<'_> {
    /// Returns the index of the chosen edge; `None` if the choice depends on the enclosing rules and `around` is
    /// `None`.
    fn run(&self, state: usize, around: Option<&Stack>) -> Result<Option<usize>, NoWay> {
        let is_full = around.is_some();
        let stack = around.cloned().unwrap_or_default();
        let (mut ways, mut seen) = (Vec::new(), Vec::new());
        for (choice, edge) in self.grammar.states[state].edges.iter().enumerate() {
            let way = Way {
                state,
                choice,
                stack: stack.clone(),
                is_beyond: false,
            };
            self.follow(&way, *edge, is_full, &mut ways, &mut seen);
        }
        let mut at = self.from;
        loop {
            if let Some(choice) = only_choice(&ways) {
                return Ok(Some(choice));
            }
            let kind = self.tokens[at].kind;
            let (mut next, mut seen) = (Vec::new(), Vec::new());
            for way in &ways {
                for edge in &self.grammar.states[way.state].edges {
                    if let Edge::Token(tokens, to) = edge
                        && tokens & kind != 0
                    {
                        let way = Way {
                            state: *to,
                            ..way.clone()
                        };
                        self.close(way, is_full, &mut next, &mut seen);
                    }
                }
            }
            if next.is_empty() {
                // A path that has reached the end of the rule is chosen: the next token is an error in the enclosing
                // rules.
                let ended = ways.iter().filter(|it| it.is_beyond).map(|it| it.choice);
                return ended.min().map(Some).ok_or(NoWay { at });
            }
            ways = next;
            if only_choice(&ways).is_none() {
                match (is_full, conflict(&ways)) {
                    (false, Conflict::All { .. }) => return Ok(None),
                    (true, Conflict::All { choice }) => return Ok(Some(choice)),
                    _ => {}
                }
            }
            at = (at + 1).min(self.tokens.len() - 1);
        }
    }

    fn follow(&self, way: &Way, edge: Edge, is_full: bool, ways: &mut Vec<Way>, seen: &mut Vec<Way>) {
        let mut way = way.clone();
        match edge {
            Edge::Free(to) | Edge::Precedence(_, to) => way.state = to,
            Edge::Rule(rule, _, follow) => {
                way.state = self.grammar.rules[rule].0;
                let outer = way.stack.take();
                way.stack = Some(Rc::new(Frame { follow, outer }));
            }
            Edge::Token(..) => return,
        }
        self.close(way, is_full, ways, seen);
    }

    /// Adds the states that a path can reach without consuming a token and in which the next token is consumed.
    fn close(&self, way: Way, is_full: bool, ways: &mut Vec<Way>, seen: &mut Vec<Way>) {
        if seen.iter().any(|it| it.is_same(&way)) {
            return;
        }
        let state = &self.grammar.states[way.state];
        seen.push(way.clone());
        if state.kind != Kind::RuleEnd {
            if state.edges.iter().any(|it| matches!(it, Edge::Token(..))) {
                ways.push(way.clone());
            }
            for edge in &state.edges {
                self.follow(&way, *edge, is_full, ways, seen);
            }
            return;
        }
        match &way.stack {
            Some(frame) => {
                let (state, stack) = (frame.follow, frame.outer.clone());
                self.close(Way { state, stack, ..way }, is_full, ways, seen);
            }
            None if is_full => ways.push(way),
            None => {
                for follow in &self.grammar.follows[state.rule] {
                    let (state, stack) = (*follow, None);
                    let way = Way {
                        state,
                        stack,
                        is_beyond: true,
                        ..way
                    };
                    self.close(way, is_full, ways, seen);
                }
            }
        }
    }
}

impl Way {
    fn is_same(&self, other: &Self) -> bool {
        self.state == other.state && self.choice == other.choice && is_same(&self.stack, &other.stack)
    }
}

fn is_same(one: &Stack, other: &Stack) -> bool {
    let (mut one, mut other) = (one, other);
    loop {
        match (one, other) {
            (None, None) => return true,
            (Some(first), Some(second)) if Rc::ptr_eq(first, second) => return true,
            (Some(first), Some(second)) if first.follow == second.follow => {
                (one, other) = (&first.outer, &second.outer);
            }
            _ => return false,
        }
    }
}

/// Returns the choice if it is the same for all paths.
fn only_choice(ways: &[Way]) -> Option<usize> {
    let first = ways.first()?.choice;
    ways.iter().all(|it| it.choice == first).then_some(first)
}

/// Conflict between paths that are equal except for their first edge.
enum Conflict {
    No,
    /// Every path has the same alternatives, so the first choice is used.
    All {
        choice: usize,
    },
}

fn conflict(ways: &[Way]) -> Conflict {
    let first = |way: &Way| {
        let same = ways
            .iter()
            .filter(|it| it.state == way.state && is_same(&it.stack, &way.stack));
        same.map(|it| it.choice).min().unwrap_or(way.choice)
    };
    let mut firsts = ways.iter().map(first);
    let Some(choice) = firsts.next() else {
        return Conflict::No;
    };
    match firsts.all(|it| it == choice) {
        true => Conflict::All { choice },
        false => Conflict::No,
    }
}
