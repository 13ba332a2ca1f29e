//! Macros with two variables, which the parser of the library leaves as calls: `all`, `exists` and `existsOne` of the
//! keys and values of a map or of the indexes and items of a list, and `transformList`, `transformMap` and
//! `transformMapEntry`; and the macros of optional values, `optMap` and `optFlatMap`.

use kube_cel::cel::common::ast::{CallExpr, ComprehensionExpr, Expr, ListExpr, LiteralValue, MapExpr};
use kube_cel::cel::parser::Expression;

/// Internal function that adds an entry to a map; no user can write it.
pub(crate) const MAP_INSERT: &str = "cel.@mapInsert";

/// The variable of what a macro has made so far.
const RESULT: &str = "@result";

/// The variable of an optional value that a macro looks into.
const OPTIONAL: &str = "@optional";

/// The variable of a loop that has no turns.
const UNUSED: &str = "@unused";

/// Expands a call of a macro; `None` if it is not one.
pub(crate) fn expand(call: &mut CallExpr) -> Option<Expr> {
    match call.func_name.as_str() {
        "optMap" | "optFlatMap" => expand_optional(call),
        _ => expand_loop(call),
    }
}

/// Expands `target.optMap(v, body)`: the body of the value as an optional one, or none; `optFlatMap`, whose body is
/// optional itself. The target is evaluated once, where cel-go has two copies of it, so that a chain stays as long as
/// it is written.
fn expand_optional(call: &mut CallExpr) -> Option<Expr> {
    let [
        Expression {
            expr: Expr::Ident(variable),
            ..
        },
        body,
    ] = call.args.as_slice()
    else {
        return None;
    };
    let body = with(variable, method(ident(OPTIONAL), "value", Vec::new()), body.clone());
    let some = match call.func_name.as_str() {
        "optMap" => method(ident("optional"), "of", vec![body]),
        _ => body,
    };
    let none = method(ident("optional"), "none", Vec::new());
    let has_value = method(ident(OPTIONAL), "hasValue", Vec::new());
    let result = self::call("_?_:_", vec![has_value, some, none]);
    Some(with(OPTIONAL, *call.target.take()?, result).expr)
}

/// An expression in which a variable has a value: the result of a loop without turns.
fn with(variable: &str, value: Expression, result: Expression) -> Expression {
    expression(Expr::Comprehension(Box::new(ComprehensionExpr {
        iter_range: list(Vec::new()),
        iter_var: UNUSED.to_owned(),
        iter_var2: None,
        accu_var: variable.to_owned(),
        accu_init: value,
        loop_cond: truth(false),
        loop_step: ident(variable),
        result,
    })))
}

/// Expands a call of a macro with two variables; `None` if it is not one.
fn expand_loop(call: &mut CallExpr) -> Option<Expr> {
    let (first, second) = variables(call)?;
    let is_filtered = call.args.len() == 4;
    let may_filter = matches!(
        call.func_name.as_str(),
        "transformList" | "transformMap" | "transformMapEntry"
    );
    if is_filtered && !may_filter {
        return None;
    }
    let mut made = make(&call.func_name, &first, call.args.last()?.clone())?;
    if is_filtered {
        made.step = self::call("_?_:_", vec![call.args[2].clone(), made.step, result()]);
    }
    Some(Expr::Comprehension(Box::new(ComprehensionExpr {
        iter_range: *call.target.take()?,
        iter_var: first,
        iter_var2: Some(second),
        accu_var: RESULT.to_owned(),
        accu_init: made.start,
        loop_cond: made.condition,
        loop_step: made.step,
        result: made.result,
    })))
}

/// The two variables of a call that has them.
fn variables(call: &CallExpr) -> Option<(String, String)> {
    let [
        Expression {
            expr: Expr::Ident(first),
            ..
        },
        Expression {
            expr: Expr::Ident(second),
            ..
        },
        _,
        rest @ ..,
    ] = call.args.as_slice()
    else {
        return None;
    };
    let is_fit = rest.len() <= 1 && call.target.is_some() && first != second;
    is_fit.then(|| (first.clone(), second.clone()))
}

/// The parts of a loop.
struct Made {
    start: Expression,
    condition: Expression,
    step: Expression,
    result: Expression,
}

fn make(name: &str, key: &str, body: Expression) -> Option<Made> {
    let made = |start, step| Made {
        start,
        condition: truth(true),
        step,
        result: result(),
    };
    Some(match name {
        "all" => Made {
            condition: call("@not_strictly_false", vec![result()]),
            ..made(truth(true), call("_&&_", vec![result(), body]))
        },
        "exists" => Made {
            condition: call("@not_strictly_false", vec![call("!_", vec![result()])]),
            ..made(truth(false), call("_||_", vec![result(), body]))
        },
        "existsOne" | "exists_one" => {
            let more = call("_+_", vec![result(), number(1)]);
            Made {
                result: call("_==_", vec![result(), number(1)]),
                ..made(number(0), call("_?_:_", vec![body, more, result()]))
            }
        }
        "transformList" => made(list(Vec::new()), call("_+_", vec![result(), list(vec![body])])),
        "transformMap" => made(map(), call(MAP_INSERT, vec![result(), ident(key), body])),
        "transformMapEntry" => made(map(), call(MAP_INSERT, vec![result(), body])),
        _ => return None,
    })
}

fn expression(expr: Expr) -> Expression {
    Expression { id: 0, expr }
}

fn ident(name: &str) -> Expression {
    expression(Expr::Ident(name.to_owned()))
}

fn result() -> Expression {
    ident(RESULT)
}

fn truth(value: bool) -> Expression {
    expression(Expr::Literal(LiteralValue::Boolean(value.into())))
}

fn number(value: i64) -> Expression {
    expression(Expr::Literal(LiteralValue::Int(value.into())))
}

fn list(items: Vec<Expression>) -> Expression {
    expression(Expr::List(ListExpr::new(items)))
}

fn map() -> Expression {
    expression(Expr::Map(MapExpr { entries: Vec::new() }))
}

fn method(target: Expression, name: &str, args: Vec<Expression>) -> Expression {
    expression(Expr::Call(CallExpr {
        func_name: name.to_owned(),
        target: Some(Box::new(target)),
        args,
    }))
}

fn call(name: &str, args: Vec<Expression>) -> Expression {
    expression(Expr::Call(CallExpr {
        func_name: name.to_owned(),
        target: None,
        args,
    }))
}
