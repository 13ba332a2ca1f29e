//! A parser that reports syntax errors, with ANTLR's default strategy: it reports an extraneous or missing token and
//! continues; after any other error, it skips tokens until one of the active rules can continue.

use std::rc::Rc;

use super::grammar::{END, Edge, Grammar, Kind, RULE_END, Tokens, show};
use super::prediction::{Frame, NoWay, Stack, choose};
use super::tokens::{Placed, Source};
use crate::registry::cel::costs;

/// Maximum number of errors from which cel-go's parser recovers.
const RECOVERIES_MAX: usize = 30;

/// Parses tokens, and adds the errors to `errors`.
pub(super) fn run(source: &Source<'_>, errors: &mut Vec<(usize, String)>) {
    let mut parser = Parser {
        grammar: Grammar::get(),
        source,
        tokens: &source.tokens,
        at: 0,
        state: 0,
        stack: None,
        errors,
        is_recovering: false,
        last_error: None,
        recoveries: 0,
    };
    // The error for too many recoveries was already added.
    let _ = parser.rule(0, 0);
}

struct Parser<'t> {
    grammar: &'static Grammar,
    source: &'t Source<'t>,
    tokens: &'t [Placed],
    /// Index of the next token.
    at: usize,
    state: usize,
    /// The calls of the current rule and its callers, innermost first.
    stack: Stack,
    errors: &'t mut Vec<(usize, String)>,
    /// Set from an error until the next consumed token. Further errors in between are not reported.
    is_recovering: bool,
    /// Index of the token with the last error, and the states in which it caused an error.
    last_error: Option<(usize, Vec<usize>)>,
    recoveries: usize,
}

/// Error within a rule.
enum Failure {
    /// No alternative continues with the token at this index.
    NoWay(usize),
    /// The next token is not one of these tokens.
    Mismatch(Tokens),
    /// There were too many errors.
    TooMany,
}

impl Parser<'_> {
    /// Parses a rule to its end, or recovers from an error in it.
    fn rule(&mut self, rule: usize, precedence: u32) -> Result<(), Failure> {
        let run = |it: &mut Self| it.walk(rule, precedence);
        match stacker::maybe_grow(costs::STACK_LEFT, costs::STACK_MORE, || run(self)) {
            Err(Failure::TooMany) => Err(Failure::TooMany),
            Err(failure) => {
                self.report_failure(&failure);
                self.recover()
            }
            Ok(()) => Ok(()),
        }
    }

    fn walk(&mut self, rule: usize, precedence: u32) -> Result<(), Failure> {
        let (mut at, end) = self.grammar.rules[rule];
        let mut is_checked = false;
        while at != end {
            if !is_checked {
                self.state = at;
            }
            let state = &self.grammar.states[at];
            let edge = match state.kind {
                Kind::Plain | Kind::RuleEnd => state.edges[0],
                Kind::LoopBack => {
                    self.check()?;
                    is_checked = true;
                    state.edges[0]
                }
                Kind::Choice | Kind::FirstTurn | Kind::Loop | Kind::LaterTurn => {
                    if !std::mem::take(&mut is_checked) {
                        self.check()?;
                    }
                    let choice = self.choose(at, precedence)?;
                    // The check after an iteration has already checked the next token.
                    is_checked = state.kind == Kind::LaterTurn && choice == 0;
                    state.edges[choice]
                }
            };
            at = match edge {
                Edge::Free(to) | Edge::Precedence(_, to) => to,
                Edge::Token(tokens, to) => {
                    self.take(tokens)?;
                    to
                }
                Edge::Rule(called, precedence, follow) => {
                    let outer = self.stack.take();
                    let frame = Frame { follow, outer };
                    self.stack = Some(Rc::new(frame));
                    let result = self.rule(called, precedence);
                    self.stack = self.stack.take().and_then(|it| it.outer.clone());
                    result?;
                    follow
                }
            };
        }
        Ok(())
    }

    fn choose(&self, at: usize, precedence: u32) -> Result<usize, Failure> {
        let state = &self.grammar.states[at];
        let kind = self.kind(0);
        let exit = state.edges.len() - 1;
        if state.is_of_operators {
            let is_next = self.is_operator(state.edges[0], precedence, kind);
            return Ok(if is_next { 0 } else { exit });
        }
        if state.edges.len() == 1 {
            return Ok(0);
        }
        if state.is_simple {
            let taken = state.edges.iter().position(|it| self.starts(*it) & kind != 0);
            let exit = state.has_exit.then_some(exit);
            return taken.or(exit).ok_or(Failure::NoWay(self.at));
        }
        choose(at, &self.stack, self.tokens, self.at).map_err(|NoWay { at }| Failure::NoWay(at))
    }

    /// Returns the possible first tokens of an edge.
    fn starts(&self, edge: Edge) -> Tokens {
        match edge {
            Edge::Token(tokens, _) => tokens,
            Edge::Rule(rule, _, _) => self.grammar.states[self.grammar.rules[rule].0].next,
            Edge::Free(to) | Edge::Precedence(_, to) => self.grammar.states[to].next,
        }
    }

    /// Returns `true` if the next token is an operator with at least this precedence.
    fn is_operator(&self, edge: Edge, precedence: u32, kind: Tokens) -> bool {
        match edge {
            Edge::Free(to) => {
                let edges = self.grammar.states[to].edges.iter();
                edges.into_iter().any(|it| self.is_operator(*it, precedence, kind))
            }
            Edge::Precedence(own, to) => own >= precedence && self.grammar.states[to].next & kind != 0,
            Edge::Token(..) | Edge::Rule(..) => false,
        }
    }

    /// Returns the kind of the token that is `ahead` positions after the next one.
    fn kind(&self, ahead: usize) -> Tokens {
        self.tokens[(self.at + ahead).min(self.tokens.len() - 1)].kind
    }

    fn skip(&mut self) {
        self.at = (self.at + 1).min(self.tokens.len() - 1);
    }

    /// Consumes one of the expected tokens.
    fn take(&mut self, wanted: Tokens) -> Result<(), Failure> {
        if self.kind(0) & wanted != 0 {
            self.matched();
            self.skip();
            return Ok(());
        }
        self.count_recovery()?;
        if self.skip_one() {
            self.skip();
            return Ok(());
        }
        if self.insert_one() {
            return Ok(());
        }
        Err(Failure::Mismatch(self.expected()))
    }

    fn matched(&mut self) {
        self.is_recovering = false;
        self.last_error = None;
    }

    /// Skips the next token if the token after it is expected.
    fn skip_one(&mut self) -> bool {
        let is_expected = self.expected() & self.kind(1) != 0;
        if is_expected {
            self.report_unwanted();
            self.skip();
            self.matched();
        }
        is_expected
    }

    /// Continues as if the missing token were present, if the next token may follow it.
    fn insert_one(&mut self) -> bool {
        let Some(Edge::Token(_, to)) = self.grammar.states[self.state].edges.first().copied() else {
            return false;
        };
        let is_expected = self.expected_at(to, &self.stack) & self.kind(0) != 0;
        if is_expected && !self.is_recovering {
            self.is_recovering = true;
            let error = format!("missing {} at {}", show(self.expected()), self.shown());
            self.report(self.at, error);
        }
        is_expected
    }

    /// Checks that the next token is possible in this state, before an edge is chosen.
    fn check(&mut self) -> Result<(), Failure> {
        if self.is_recovering {
            return Ok(());
        }
        let state = &self.grammar.states[self.state];
        if state.next & (self.kind(0) | RULE_END) != 0 {
            return Ok(());
        }
        match state.kind {
            Kind::LoopBack | Kind::LaterTurn => {
                self.report_unwanted();
                let wanted = self.expected() | self.recovery_set();
                self.skip_until(wanted);
                Ok(())
            }
            _ if self.skip_one() => Ok(()),
            _ => Err(Failure::Mismatch(self.expected())),
        }
    }

    /// Returns the tokens that are expected in the current state.
    fn expected(&self) -> Tokens {
        self.expected_at(self.state, &self.stack)
    }

    fn expected_at(&self, state: usize, stack: &Stack) -> Tokens {
        let mut following = self.grammar.states[state].next;
        let mut expected = following & !RULE_END;
        let mut stack = stack;
        while following & RULE_END != 0
            && let Some(frame) = stack
        {
            following = self.grammar.states[frame.follow].next;
            expected |= following & !RULE_END;
            stack = &frame.outer;
        }
        match following & RULE_END != 0 {
            true => expected | END,
            false => expected,
        }
    }

    /// Returns the tokens with which an active rule can continue.
    fn recovery_set(&self) -> Tokens {
        let mut set = 0;
        let mut stack = &self.stack;
        while let Some(frame) = stack {
            set |= self.grammar.states[frame.follow].next & !RULE_END;
            stack = &frame.outer;
        }
        set
    }

    fn skip_until(&mut self, wanted: Tokens) {
        while self.kind(0) & (wanted | END) == 0 {
            self.skip();
        }
    }

    /// Skips tokens until an active rule can continue.
    fn recover(&mut self) -> Result<(), Failure> {
        self.count_recovery()?;
        let is_known = |(at, states): &(usize, Vec<usize>)| *at == self.at && states.contains(&self.state);
        if self.last_error.as_ref().is_some_and(is_known) {
            // The parser was already at this token and in this state after an earlier error.
            self.skip();
        }
        let mut states = self.last_error.take().map_or_else(Vec::new, |(_, states)| states);
        states.push(self.state);
        self.last_error = Some((self.at, states));
        let wanted = self.recovery_set();
        self.skip_until(wanted);
        Ok(())
    }

    fn count_recovery(&mut self) -> Result<(), Failure> {
        if self.recoveries >= RECOVERIES_MAX {
            self.report(
                self.at,
                format!("error recovery attempt limit exceeded: {RECOVERIES_MAX}"),
            );
            return Err(Failure::TooMany);
        }
        self.recoveries += 1;
        Ok(())
    }

    fn report_unwanted(&mut self) {
        if self.is_recovering {
            return;
        }
        self.is_recovering = true;
        let error = format!("extraneous input {} expecting {}", self.shown(), show(self.expected()));
        self.report(self.at, error);
    }

    fn report_failure(&mut self, failure: &Failure) {
        if self.is_recovering {
            return;
        }
        self.is_recovering = true;
        match failure {
            Failure::NoWay(at) => {
                let (start, end) = (self.tokens[self.at].start, self.tokens[*at].end);
                let read = match self.kind(0) {
                    END => "<EOF>".to_owned(),
                    _ => self.source.text(start..end),
                };
                let error = format!("no viable alternative at input '{read}'");
                self.report(*at, error);
            }
            Failure::Mismatch(expected) => {
                let error = format!("mismatched input {} expecting {}", self.shown(), show(*expected));
                self.report(self.at, error);
            }
            Failure::TooMany => {}
        }
    }

    fn report(&mut self, token: usize, error: String) {
        self.errors.push((self.tokens[token].start, error));
    }

    /// Formats the next token for errors.
    fn shown(&self) -> String {
        let Placed { kind, start, end } = self.tokens[self.at];
        match kind {
            END => "'<EOF>'".to_owned(),
            _ => {
                let text = self.source.text(start..end).replace('\n', "\\n");
                format!("'{}'", text.replace('\r', "\\r").replace('\t', "\\t"))
            }
        }
    }
}
