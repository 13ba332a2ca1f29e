//! Expands the macros: `has`; `all`, `exists`, `exists_one`, `map` and `filter`; their variants with two variables
//! (index and item, or key and value); `optMap` and `optFlatMap` for optional values; and `sortBy`.

use super::builder::{Builder, global};
use super::{Dialect, OPTIONAL_TARGET};
use crate::registry::cel::ast::{CallExpr, ComprehensionExpr, Expr, Expression, ListExpr, LiteralValue, MapExpr};

/// Internal function that adds an entry to a map; users cannot write its name.
pub(crate) const MAP_INSERT: &str = "cel.@mapInsert";

/// Name of the accumulator variable.
const RESULT: &str = "@result";

/// Name of the accumulator in earlier versions of cel-go. A macro variable may not have this name.
const EARLIER_RESULT: &str = "__result__";

/// Name of the variable of a loop without iterations.
pub(crate) const UNUSED: &str = "#unused";

/// First minor version of Kubernetes with cel-go's library `lists`, which contains `sortBy`.
const LISTS_SINCE: u8 = 34;

/// Name of the variable for the list that `sortBy` sorts.
const SORTED: &str = "@__sortBy_input__";

/// Expands a macro call at a position, with its target and arguments.
pub(super) type Expand = fn(&mut Builder, usize, Expression, Vec<Expression>) -> Expression;

/// Returns the macro with this name and number of arguments.
pub(super) fn of(name: &str, args: usize, dialect: Dialect) -> Option<Expand> {
    Some(match (name, args) {
        ("all", 2) => |it, at, target, args| expand_loop(it, at, target, args, 1, all),
        ("exists", 2) => |it, at, target, args| expand_loop(it, at, target, args, 1, exists),
        ("exists_one", 2) => |it, at, target, args| expand_loop(it, at, target, args, 1, exists_one),
        ("map", 2 | 3) => |it, at, target, args| expand_loop(it, at, target, args, 1, list),
        ("filter", 2) => |it, at, target, mut args| {
            args.push(args[0].clone());
            expand_loop(it, at, target, args, 1, list)
        },
        ("all", 3) => |it, at, target, args| expand_loop(it, at, target, args, 2, all),
        ("exists", 3) => |it, at, target, args| expand_loop(it, at, target, args, 2, exists),
        ("existsOne" | "exists_one", 3) => |it, at, target, args| expand_loop(it, at, target, args, 2, exists_one),
        ("transformList", 3 | 4) => |it, at, target, args| expand_loop(it, at, target, args, 2, list),
        ("transformMap", 3 | 4) => |it, at, target, args| expand_loop(it, at, target, args, 2, entry),
        ("transformMapEntry", 3 | 4) => |it, at, target, args| expand_loop(it, at, target, args, 2, entries),
        ("optMap", 2) => |it, at, target, args| optional(it, at, target, args, "optMap"),
        ("optFlatMap", 2) => |it, at, target, args| optional(it, at, target, args, "optFlatMap"),
        ("sortBy", 2) if dialect.libraries >= LISTS_SINCE => sort_by,
        _ => return None,
    })
}

/// Expands `has(a.b)`.
pub(super) fn has(builder: &mut Builder, id: u64, mut args: Vec<Expression>) -> Expression {
    let place = builder.place_of(id);
    match args.pop() {
        Some(Expression {
            expr: Expr::Select(mut select),
            ..
        }) => {
            select.test = true;
            builder.made(place, Expr::Select(select))
        }
        other => {
            let at = other.map_or(place, |it| builder.place_of(it.id));
            builder.wrong(at, "invalid argument to has() macro")
        }
    }
}

/// The parts of a loop expression that a macro creates.
struct Made {
    start: Expression,
    condition: Expression,
    step: Expression,
    result: Expression,
}

/// Creates the parts of a loop from the name of its first variable, its optional condition, and its body.
type MakeLoop = fn(&mut Maker<'_>, &str, Option<Expression>, Expression) -> Made;

/// Expands a macro with one or two variables. The last argument is the body; an argument before it is the condition.
fn expand_loop(
    builder: &mut Builder,
    place: usize,
    target: Expression,
    mut args: Vec<Expression>,
    variables: usize,
    make: MakeLoop,
) -> Expression {
    let names = match names(&args[..variables]) {
        Ok(names) => names,
        Err((id, text)) => {
            let at = builder.place_of(id);
            return builder.wrong(at, text);
        }
    };
    let body = args.pop();
    let filter = (args.len() > variables).then(|| args.pop()).flatten();
    let Some(body) = body else {
        return builder.wrong(place, "argument is not an identifier");
    };
    let mut maker = Maker { builder, place };
    let made = make(&mut maker, &names[0], filter, body);
    let mut names = names.into_iter();
    let expr = Expr::Comprehension(Box::new(ComprehensionExpr {
        iter_range: target,
        iter_var: names.next().unwrap_or_default(),
        iter_var2: names.next(),
        accu_var: RESULT.to_owned(),
        accu_init: made.start,
        loop_cond: made.condition,
        loop_step: made.step,
        result: made.result,
    }));
    builder.made(place, expr)
}

/// Returns the variables of a loop, or the argument that is not a variable and the error.
fn names(args: &[Expression]) -> Result<Vec<String>, (u64, String)> {
    let mut found: Vec<String> = Vec::with_capacity(args.len());
    for arg in args {
        let name = match &arg.expr {
            Expr::Ident(name) if args.len() == 1 || !name.starts_with('.') => name,
            _ if args.len() == 1 => return Err((arg.id, "argument is not an identifier".to_owned())),
            _ => return Err((arg.id, "argument must be a simple name".to_owned())),
        };
        if found.contains(name) {
            return Err((arg.id, format!("duplicate variable name: {name}")));
        }
        found.push(name.clone());
    }
    match found.iter().position(|it| it == RESULT || it == EARLIER_RESULT) {
        Some(at) => Err((
            args[at].id,
            "iteration variable overwrites accumulator variable".to_owned(),
        )),
        None => Ok(found),
    }
}

fn all(maker: &mut Maker<'_>, _: &str, _: Option<Expression>, body: Expression) -> Made {
    let result = maker.result();
    let so_far = maker.result();
    Made {
        start: maker.truth(true),
        condition: maker.call("@not_strictly_false", vec![result]),
        step: maker.call("_&&_", vec![so_far, body]),
        result: maker.result(),
    }
}

fn exists(maker: &mut Maker<'_>, _: &str, _: Option<Expression>, body: Expression) -> Made {
    let result = maker.result();
    let not = maker.call("!_", vec![result]);
    let so_far = maker.result();
    Made {
        start: maker.truth(false),
        condition: maker.call("@not_strictly_false", vec![not]),
        step: maker.call("_||_", vec![so_far, body]),
        result: maker.result(),
    }
}

fn exists_one(maker: &mut Maker<'_>, _: &str, _: Option<Expression>, body: Expression) -> Made {
    let (count, one) = (maker.result(), maker.one());
    let more = maker.call("_+_", vec![count, one]);
    let same = maker.result();
    let (count, one) = (maker.result(), maker.one());
    Made {
        start: maker.number(0),
        condition: maker.truth(true),
        step: maker.call("_?_:_", vec![body, more, same]),
        result: maker.call("_==_", vec![count, one]),
    }
}

fn list(maker: &mut Maker<'_>, _: &str, filter: Option<Expression>, body: Expression) -> Made {
    let (so_far, item) = (maker.result(), maker.list(vec![body]));
    let step = maker.call("_+_", vec![so_far, item]);
    let start = maker.list(Vec::new());
    maker.filtered(start, filter, step)
}

fn entry(maker: &mut Maker<'_>, key: &str, filter: Option<Expression>, body: Expression) -> Made {
    let (so_far, key) = (maker.result(), maker.ident(key));
    let step = maker.call(MAP_INSERT, vec![so_far, key, body]);
    let start = maker.map();
    maker.filtered(start, filter, step)
}

fn entries(maker: &mut Maker<'_>, _: &str, filter: Option<Expression>, body: Expression) -> Made {
    let so_far = maker.result();
    let step = maker.call(MAP_INSERT, vec![so_far, body]);
    let start = maker.map();
    maker.filtered(start, filter, step)
}

/// Expands `target.optMap(v, body)`, which wraps the body in an optional value, and `optFlatMap`, which expects an
/// optional body. The target is only evaluated once. cel-go duplicates it, so a chain of macros grows exponentially
/// there.
fn optional(
    builder: &mut Builder,
    place: usize,
    target: Expression,
    mut args: Vec<Expression>,
    name: &str,
) -> Expression {
    let (body, variable) = (args.pop(), args.pop());
    let (Some(body), Some(variable)) = (body, variable) else {
        return builder.wrong(place, "argument is not an identifier");
    };
    let Expr::Ident(variable) = variable.expr else {
        let at = builder.place_of(variable.id);
        return builder.wrong(at, format!("{name}() variable name must be a simple identifier"));
    };
    let mut maker = Maker { builder, place };
    let inner = maker.ident(OPTIONAL_TARGET);
    let has_value = maker.method(inner, "hasValue");
    let inner = maker.ident(OPTIONAL_TARGET);
    let value = maker.method(inner, "value");
    let mut made = maker.with(&variable, value, body);
    if name == "optMap" {
        made = maker.call("optional.of", vec![made]);
    }
    let none = maker.call("optional.none", Vec::new());
    let result = maker.call("_?_:_", vec![has_value, made, none]);
    maker.with(OPTIONAL_TARGET, target, result)
}

/// Expands `cel.bind(v, value, body)`.
pub(super) fn bind(builder: &mut Builder, place: usize, args: Vec<Expression>) -> Expression {
    let Ok([variable, value, body]) = <[Expression; 3]>::try_from(args) else {
        return builder.wrong(place, "cel.bind() variable names must be simple identifiers");
    };
    let Expr::Ident(name) = variable.expr else {
        let at = builder.place_of(variable.id);
        return builder.wrong(at, "cel.bind() variable names must be simple identifiers");
    };
    Maker { builder, place }.with(&name, value, body)
}

/// Expands `target.sortBy(v, key)`.
fn sort_by(builder: &mut Builder, place: usize, target: Expression, args: Vec<Expression>) -> Expression {
    if let Expr::Literal(_) | Expr::Map(_) | Expr::Struct(_) = target.expr {
        let at = builder.place_of(target.id);
        let text = "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
        return builder.wrong(at, text);
    }
    let mut maker = Maker { builder, place };
    let (sorted, mapped) = (maker.ident(SORTED), maker.ident(SORTED));
    let keys = expand_loop(maker.builder, place, mapped, args, 1, list);
    let expr = Expr::Call(CallExpr {
        func_name: "@sortByAssociatedKeys".to_owned(),
        target: Some(Box::new(sorted)),
        args: vec![keys],
    });
    let result = maker.builder.made(place, expr);
    maker.with(SORTED, target, result)
}

/// Creates nodes at the position of a macro.
struct Maker<'b> {
    builder: &'b mut Builder,
    place: usize,
}

impl Maker<'_> {
    fn made(&mut self, expr: Expr) -> Expression {
        self.builder.made(self.place, expr)
    }

    /// Creates a loop that builds a list or a map, starting with an empty one.
    fn filtered(&mut self, start: Expression, filter: Option<Expression>, mut step: Expression) -> Made {
        if let Some(filter) = filter {
            let same = self.result();
            step = self.call("_?_:_", vec![filter, step, same]);
        }
        Made {
            start,
            condition: self.truth(true),
            step,
            result: self.result(),
        }
    }

    /// Creates an expression that binds a variable to a value, as a loop without iterations.
    fn with(&mut self, variable: &str, value: Expression, result: Expression) -> Expression {
        let expr = Expr::Comprehension(Box::new(ComprehensionExpr {
            iter_range: self.list(Vec::new()),
            iter_var: UNUSED.to_owned(),
            iter_var2: None,
            accu_var: variable.to_owned(),
            accu_init: value,
            loop_cond: self.truth(false),
            loop_step: self.ident(variable),
            result,
        }));
        self.made(expr)
    }

    fn ident(&mut self, name: &str) -> Expression {
        self.made(Expr::Ident(name.to_owned()))
    }

    fn result(&mut self) -> Expression {
        self.ident(RESULT)
    }

    fn truth(&mut self, value: bool) -> Expression {
        self.made(Expr::Literal(LiteralValue::Boolean(value)))
    }

    fn number(&mut self, value: i64) -> Expression {
        self.made(Expr::Literal(LiteralValue::Int(value)))
    }

    fn one(&mut self) -> Expression {
        self.number(1)
    }

    fn list(&mut self, items: Vec<Expression>) -> Expression {
        self.made(Expr::List(ListExpr {
            elements: items,
            optional_indices: Vec::new(),
        }))
    }

    fn map(&mut self) -> Expression {
        self.made(Expr::Map(MapExpr { entries: Vec::new() }))
    }

    fn method(&mut self, target: Expression, name: &str) -> Expression {
        self.made(Expr::Call(CallExpr {
            func_name: name.to_owned(),
            target: Some(Box::new(target)),
            args: Vec::new(),
        }))
    }

    fn call(&mut self, name: &str, args: Vec<Expression>) -> Expression {
        let id = self.builder.id(self.place);
        global(id, name, args)
    }
}
