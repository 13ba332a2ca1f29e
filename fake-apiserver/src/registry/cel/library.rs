//! The functions that expressions can call: those of the crate `kube-cel`, and the few it lacks.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use kube_cel::KubeCelExt as _;
use kube_cel::cel::parser::Expression;
use kube_cel::cel::{Context, ExecutionError, Value as CelValue};

use super::parse::{OPTIONAL_SELECT, parse};
use super::url;

thread_local! {
    /// All functions, registered once a thread.
    pub(crate) static FUNCTIONS: Context<'static> = functions();
    /// Names that were found to be functions; there are only so many.
    static KNOWN: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
}

/// The functions of the library, and what it lacks: `dyn`, and `type` with names of types to compare with.
pub(crate) fn functions() -> Context<'static> {
    let mut context = Context::default().with_all();
    add_missing_functions(&mut context);
    context
}

/// Adds what the library lacks.
pub(crate) fn add_missing_functions(context: &mut Context<'_>) {
    url::register(context);
    context.add_function("dyn", |value: CelValue| -> Result<CelValue, ExecutionError> {
        Ok(value)
    });
    context.add_function("type", |value: CelValue| -> Result<CelValue, ExecutionError> {
        Ok(type_value(match value {
            CelValue::Int(_) => "int",
            CelValue::UInt(_) => "uint",
            CelValue::Float(_) => "double",
            CelValue::String(_) => "string",
            CelValue::Bytes(_) => "bytes",
            CelValue::Bool(_) => "bool",
            CelValue::List(_) => "list",
            CelValue::Map(_) => "map",
            CelValue::Null => "null_type",
            _ => "dyn",
        }))
    });
    // It is evaluated without being called; only its name must be known.
    context.add_function(OPTIONAL_SELECT, |value: CelValue| -> Result<CelValue, ExecutionError> {
        Ok(value)
    });
    for name in TYPE_NAMES {
        context.add_variable_from_value(name, type_value(name));
    }
}

/// Types that `type(x)` may be compared with.
pub(crate) const TYPE_NAMES: [&str; 9] = [
    "int",
    "uint",
    "double",
    "string",
    "bytes",
    "bool",
    "list",
    "map",
    "null_type",
];

/// A type as a value: a text no user writes.
fn type_value(name: &str) -> CelValue {
    CelValue::String(Arc::new(format!("\u{0}type {name}")))
}

/// Returns `true` if a function of this name is registered: calling it without arguments then fails for another reason.
pub(crate) fn is_function(namespace: Option<&str>, name: &str) -> bool {
    let name = match namespace {
        Some(namespace) => format!("{namespace}.{name}"),
        None => name.to_owned(),
    };
    if KNOWN.with_borrow(|known| known.contains(&name)) {
        return true;
    }
    let is_known = FUNCTIONS.with(|functions| {
        let call = parse(&format!("{name}()"));
        let result = call.map(|call| execute_raw(&call, functions));
        !matches!(result, Ok(Some(Err(ExecutionError::UndeclaredReference(_)))))
    });
    if is_known {
        KNOWN.with_borrow_mut(|known| known.insert(name));
    }
    is_known
}

/// Evaluates an expression of this module's.
fn execute(program: &Expression, context: &Context<'_>) -> Option<CelValue> {
    execute_raw(program, context)?.ok()
}

/// Evaluates an expression; `None` where the library panics.
fn execute_raw(program: &Expression, context: &Context<'_>) -> Option<Result<CelValue, ExecutionError>> {
    catch_unwind(AssertUnwindSafe(|| CelValue::resolve(program, context))).ok()
}

/// A conversion of the language, parsed once.
pub(crate) struct TypeConversion {
    expression: &'static str,
    parsed: OnceLock<Option<Expression>>,
}

/// `timestamp(text)`
pub(crate) static TIMESTAMP: TypeConversion = TypeConversion::new("timestamp(self)");
/// `duration(text)`
pub(crate) static DURATION: TypeConversion = TypeConversion::new("duration(self)");

impl TypeConversion {
    const fn new(expression: &'static str) -> Self {
        Self {
            expression,
            parsed: OnceLock::new(),
        }
    }

    /// Times are made by the language itself, whose types for them are another crate's.
    pub(crate) fn of(&self, text: &str) -> Option<CelValue> {
        let program = self.parsed.get_or_init(|| parse(self.expression).ok()).as_ref()?;
        FUNCTIONS.with(|functions| {
            let mut context = functions.new_inner_scope();
            context.add_variable_from_value("self", CelValue::String(Arc::new(text.to_owned())));
            execute(program, &context)
        })
    }
}
