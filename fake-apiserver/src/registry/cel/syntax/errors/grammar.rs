//! `Grammar`: the rules of cel-go's `CEL.g4` as the network of states that ANTLR generates.

use std::sync::OnceLock;

/// A set of kinds of tokens, by the bits of their numbers.
pub(super) type Tokens = u64;

/// The end of the text.
pub(super) const END: Tokens = 1;

/// In the set of the next tokens of a state: the rule may end at this state.
pub(super) const RULE_END: Tokens = 1 << 63;

/// The names of the kinds of tokens as errors show them, in the order of their numbers.
const NAMES: [&str; 38] = [
    "<EOF>",
    "'=='",
    "'!='",
    "'in'",
    "'<'",
    "'<='",
    "'>='",
    "'>'",
    "'&&'",
    "'||'",
    "'['",
    "']'",
    "'{'",
    "'}'",
    "'('",
    "')'",
    "'.'",
    "','",
    "'-'",
    "'!'",
    "'?'",
    "':'",
    "'+'",
    "'*'",
    "'/'",
    "'%'",
    "'true'",
    "'false'",
    "'null'",
    "WHITESPACE",
    "COMMENT",
    "NUM_FLOAT",
    "NUM_INT",
    "NUM_UINT",
    "STRING",
    "BYTES",
    "IDENTIFIER",
    "ESC_IDENTIFIER",
];

/// Returns the kind of token with this name; the name of a mark includes its quotes.
pub(super) fn kind(name: &str) -> Tokens {
    match NAMES.iter().position(|it| *it == name) {
        Some(at) => 1 << at,
        None => 0,
    }
}

/// Returns the kind of an operator, a bracket, another mark or a reserved word.
pub(super) fn mark(mark: &str) -> Tokens {
    kind(&format!("'{mark}'"))
}

/// Formats a set for errors: several kinds are within braces.
pub(super) fn show(tokens: Tokens) -> String {
    let names = NAMES.iter().enumerate();
    let names: Vec<&str> = names
        .filter(|(at, _)| tokens & (1 << at) != 0)
        .map(|(_, name)| *name)
        .collect();
    match names.as_slice() {
        [name] => (*name).to_owned(),
        names => format!("{{{}}}", names.join(", ")),
    }
}

/// Kinds of states. The parser checks the next token at the places of ANTLR's generated parsers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Plain,
    /// Before alternatives.
    Choice,
    /// Before the first iteration of a loop with at least one iteration.
    FirstTurn,
    /// Before each iteration of a loop; the other edge leaves the loop.
    Loop,
    /// After an iteration of such a loop.
    LoopBack,
    /// After an iteration of a loop with at least one iteration; the other edge leaves the loop.
    LaterTurn,
    RuleEnd,
}

/// An edge from one state to another.
#[derive(Clone, Copy, Debug)]
pub(super) enum Edge {
    Free(usize),
    /// Consumes one of these tokens.
    Token(Tokens, usize),
    /// Enters a rule with an operator precedence, and then continues at a state.
    Rule(usize, u32, usize),
    /// Applies only if the precedence of the current rule is at most this.
    Precedence(u32, usize),
}

/// A state.
#[derive(Debug)]
pub(super) struct State {
    pub(super) kind: Kind,
    pub(super) rule: usize,
    pub(super) edges: Vec<Edge>,
    /// The possible next tokens, with [`RULE_END`] if the rule may end.
    pub(super) next: Tokens,
    /// Set if one token decides between the edges.
    pub(super) is_simple: bool,
    /// Set if the last edge skips an optional part or leaves a loop.
    pub(super) has_exit: bool,
    /// Set for loops over binary operators, in which precedence decides.
    pub(super) is_of_operators: bool,
}

/// The network.
#[derive(Debug)]
pub(super) struct Grammar {
    pub(super) states: Vec<State>,
    /// The first and the last state of each rule.
    pub(super) rules: Vec<(usize, usize)>,
    /// The states at which a rule may continue, for each rule.
    pub(super) follows: Vec<Vec<usize>>,
}

/// A part of a rule.
enum Part {
    Token(Tokens),
    Rule(usize, u32),
    Precedence(u32),
    All(Vec<Part>),
    /// One of several.
    Any(Vec<Part>),
    /// At most once.
    Maybe(Box<Part>),
    /// Any number of times.
    Many(Box<Part>),
    /// At least once.
    Some(Box<Part>),
    /// Any number of alternatives of operators.
    Operators(Vec<Part>),
}

const EXPR: usize = 1;
const OR: usize = 2;
const AND: usize = 3;
const RELATION: usize = 4;
const CALC: usize = 5;
const UNARY: usize = 6;
const MEMBER: usize = 7;
const PRIMARY: usize = 8;
const EXPRESSIONS: usize = 9;
const ELEMENTS: usize = 10;
const FIELDS: usize = 11;
const FIELD: usize = 12;
const ENTRIES: usize = 13;
const NAME: usize = 14;
const ELEMENT: usize = 15;
const LITERAL: usize = 16;

/// The rules by their numbers.
#[expect(clippy::too_many_lines, reason = "a table with a row for each rule")]
fn rules() -> Vec<Part> {
    use Part::{All, Any, Many, Operators, Precedence};
    let t = |it: &str| Part::Token(mark(it));
    let named = |it: &str| Part::Token(kind(it));
    let of = |rule: usize| Part::Rule(rule, 0);
    let set = |marks: &[&str]| Part::Token(marks.iter().fold(0, |all, it| all | mark(it)));
    let maybe = |part: Part| Part::Maybe(Box::new(part));
    let many = |parts: Vec<Part>| Many(Box::new(All(parts)));
    let some = |part: Part| Part::Some(Box::new(part));
    let operator = |precedence: u32, marks: &[&str], rule: usize| {
        let right = Part::Rule(rule, precedence + 1);
        All(vec![Precedence(precedence), set(marks), right])
    };
    let name = || named("IDENTIFIER");
    let call = || All(vec![t("("), maybe(of(EXPRESSIONS)), t(")")]);
    let list = |element: Vec<Part>, turn: Vec<Part>| {
        let mut parts = element;
        let mut again = vec![t(",")];
        again.extend(turn);
        parts.push(many(again));
        All(parts)
    };
    let pair = |key: usize| vec![of(key), t(":"), of(EXPR)];
    vec![
        All(vec![of(EXPR), Part::Token(END)]),
        All(vec![of(OR), maybe(All(vec![t("?"), of(OR), t(":"), of(EXPR)]))]),
        All(vec![of(AND), many(vec![t("||"), of(AND)])]),
        All(vec![of(RELATION), many(vec![t("&&"), of(RELATION)])]),
        All(vec![
            of(CALC),
            Operators(vec![operator(1, &["<", "<=", ">=", ">", "==", "!=", "in"], RELATION)]),
        ]),
        All(vec![
            of(UNARY),
            Operators(vec![
                operator(2, &["*", "/", "%"], CALC),
                operator(1, &["+", "-"], CALC),
            ]),
        ]),
        Any(vec![
            of(MEMBER),
            All(vec![some(t("!")), of(MEMBER)]),
            All(vec![some(t("-")), of(MEMBER)]),
        ]),
        All(vec![
            of(PRIMARY),
            Operators(vec![
                All(vec![Precedence(3), t("."), maybe(t("?")), of(NAME)]),
                All(vec![Precedence(2), t("."), name(), call()]),
                All(vec![Precedence(1), t("["), maybe(t("?")), of(EXPR), t("]")]),
            ]),
        ]),
        Any(vec![
            All(vec![maybe(t(".")), name()]),
            All(vec![maybe(t(".")), name(), call()]),
            All(vec![t("("), of(EXPR), t(")")]),
            All(vec![t("["), maybe(of(ELEMENTS)), maybe(t(",")), t("]")]),
            All(vec![t("{"), maybe(of(ENTRIES)), maybe(t(",")), t("}")]),
            All(vec![
                maybe(t(".")),
                name(),
                many(vec![t("."), name()]),
                t("{"),
                maybe(of(FIELDS)),
                maybe(t(",")),
                t("}"),
            ]),
            of(LITERAL),
        ]),
        list(vec![of(EXPR)], vec![of(EXPR)]),
        list(vec![of(ELEMENT)], vec![of(ELEMENT)]),
        list(pair(FIELD), pair(FIELD)),
        All(vec![maybe(t("?")), of(NAME)]),
        list(pair(ELEMENT), pair(ELEMENT)),
        Any(vec![name(), named("ESC_IDENTIFIER")]),
        All(vec![maybe(t("?")), of(EXPR)]),
        Any(vec![
            All(vec![maybe(t("-")), named("NUM_INT")]),
            named("NUM_UINT"),
            All(vec![maybe(t("-")), named("NUM_FLOAT")]),
            named("STRING"),
            named("BYTES"),
            t("true"),
            t("false"),
            t("null"),
        ]),
    ]
}

impl Grammar {
    /// Returns the grammar, which is built once.
    pub(super) fn get() -> &'static Self {
        static GRAMMAR: OnceLock<Grammar> = OnceLock::new();
        GRAMMAR.get_or_init(Self::build)
    }

    fn build() -> Self {
        let mut grammar = Self {
            states: Vec::new(),
            rules: Vec::new(),
            follows: Vec::new(),
        };
        let rules = rules();
        for rule in 0..rules.len() {
            let ends = (grammar.add(Kind::Plain, rule), grammar.add(Kind::RuleEnd, rule));
            grammar.rules.push(ends);
        }
        for (rule, part) in rules.iter().enumerate() {
            let (start, end) = grammar.rules[rule];
            grammar.part(part, rule, start, end);
        }
        grammar.follows = vec![Vec::new(); rules.len()];
        for state in &grammar.states {
            for edge in &state.edges {
                if let Edge::Rule(rule, _, follow) = edge {
                    grammar.follows[*rule].push(*follow);
                }
            }
        }
        for at in 0..grammar.states.len() {
            grammar.states[at].next = grammar.reach(&Edge::Free(at), &mut Vec::new(), false);
        }
        for at in 0..grammar.states.len() {
            let mut all = 0;
            let mut is_simple = true;
            for edge in &grammar.states[at].edges {
                let tokens = grammar.reach(edge, &mut Vec::new(), true);
                is_simple &= all & tokens == 0;
                all |= tokens;
            }
            grammar.states[at].is_simple = is_simple;
        }
        grammar
    }

    fn add(&mut self, kind: Kind, rule: usize) -> usize {
        self.states.push(State {
            kind,
            rule,
            edges: Vec::new(),
            next: 0,
            is_simple: true,
            has_exit: false,
            is_of_operators: false,
        });
        self.states.len() - 1
    }

    /// Adds a path through a part, from one state to another.
    fn part(&mut self, part: &Part, rule: usize, from: usize, to: usize) {
        match part {
            Part::Token(tokens) => self.states[from].edges.push(Edge::Token(*tokens, to)),
            Part::Rule(called, precedence) => self.states[from].edges.push(Edge::Rule(*called, *precedence, to)),
            Part::Precedence(precedence) => self.states[from].edges.push(Edge::Precedence(*precedence, to)),
            Part::All(parts) => {
                let mut at = from;
                for (index, part) in parts.iter().enumerate() {
                    let is_last = index + 1 == parts.len();
                    let next = if is_last { to } else { self.add(Kind::Plain, rule) };
                    self.part(part, rule, at, next);
                    at = next;
                }
            }
            Part::Any(parts) => {
                let choice = self.free(Kind::Choice, rule, from);
                self.alternatives(parts, rule, choice, to);
            }
            Part::Maybe(part) => {
                let choice = self.free(Kind::Choice, rule, from);
                self.alternatives(std::slice::from_ref(part), rule, choice, to);
                self.exit(choice, to);
            }
            Part::Many(part) => self.turns(std::slice::from_ref(part), rule, from, to),
            Part::Operators(parts) => {
                self.turns(parts, rule, from, to);
                if let Some(Edge::Free(entry)) = self.states[from].edges.last().copied() {
                    self.states[entry].is_of_operators = true;
                }
            }
            Part::Some(part) => {
                let first = self.free(Kind::FirstTurn, rule, from);
                let later = self.add(Kind::LaterTurn, rule);
                self.alternatives(std::slice::from_ref(part), rule, first, later);
                self.states[later].edges.push(Edge::Free(first));
                self.exit(later, to);
            }
        }
    }

    /// Adds a state after another.
    fn free(&mut self, kind: Kind, rule: usize, from: usize) -> usize {
        let state = self.add(kind, rule);
        self.states[from].edges.push(Edge::Free(state));
        state
    }

    fn alternatives(&mut self, parts: &[Part], rule: usize, from: usize, to: usize) {
        for part in parts {
            let start = self.free(Kind::Plain, rule, from);
            self.part(part, rule, start, to);
        }
    }

    /// Adds a loop of any number of iterations.
    fn turns(&mut self, parts: &[Part], rule: usize, from: usize, to: usize) {
        let entry = self.free(Kind::Loop, rule, from);
        let kind = if parts.len() > 1 { Kind::Choice } else { Kind::Plain };
        let turn = self.free(kind, rule, entry);
        let back = self.add(Kind::LoopBack, rule);
        self.alternatives(parts, rule, turn, back);
        self.states[back].edges.push(Edge::Free(entry));
        self.exit(entry, to);
    }

    fn exit(&mut self, from: usize, to: usize) {
        self.states[from].edges.push(Edge::Free(to));
        self.states[from].has_exit = true;
    }

    /// Returns the possible next tokens of an edge. If the rule may end, they include the tokens that may follow it in
    /// any rule, or [`RULE_END`].
    fn reach(&self, edge: &Edge, seen: &mut Vec<usize>, is_beyond: bool) -> Tokens {
        let state = match edge {
            Edge::Token(tokens, _) => return *tokens,
            // No rule is empty.
            Edge::Rule(rule, _, _) => self.rules[*rule].0,
            Edge::Free(state) | Edge::Precedence(_, state) => *state,
        };
        if seen.contains(&state) {
            return 0;
        }
        seen.push(state);
        let State { kind, rule, edges, .. } = &self.states[state];
        if *kind != Kind::RuleEnd {
            return edges.iter().fold(0, |all, it| all | self.reach(it, seen, is_beyond));
        }
        if !is_beyond {
            return RULE_END;
        }
        let follows = self.follows[*rule].iter();
        follows.fold(0, |all, it| all | self.reach(&Edge::Free(*it), seen, is_beyond))
    }
}
