//! `Expression`: the syntax tree of an expression. Its nodes are numbered as in cel-go's `common/ast`.

/// An expression or subexpression.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Expression {
    /// Number of the node. The parser stores the positions of nodes by number.
    pub(crate) id: u64,
    pub(crate) expr: Expr,
}

/// Node of the syntax tree.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Expr {
    /// Placeholder for a node with an error.
    #[default]
    Unspecified,
    Call(CallExpr),
    /// A loop, created by a macro.
    Comprehension(Box<ComprehensionExpr>),
    Ident(String),
    List(ListExpr),
    Literal(LiteralValue),
    Map(MapExpr),
    Select(SelectExpr),
    Struct(StructExpr),
}

/// The value of a literal.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum LiteralValue {
    Boolean(bool),
    Bytes(Vec<u8>),
    Double(f64),
    Int(i64),
    Null,
    String(String),
    UInt(u64),
}

/// A call of a function, a method or an operator.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CallExpr {
    pub(crate) func_name: String,
    /// The object of a method call; `None` for functions.
    pub(crate) target: Option<Box<Expression>>,
    pub(crate) args: Vec<Expression>,
}

/// `operand.field`, or `has(operand.field)` if `test` is set.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SelectExpr {
    pub(crate) operand: Box<Expression>,
    pub(crate) field: String,
    pub(crate) test: bool,
}

/// `Name{field: value}`
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StructExpr {
    pub(crate) type_name: String,
    pub(crate) entries: Vec<EntryPart>,
}

/// `{key: value}`
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MapExpr {
    pub(crate) entries: Vec<EntryPart>,
}

/// `[a, ?b]`
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ListExpr {
    pub(crate) elements: Vec<Expression>,
    /// Indices of the elements with a `?`.
    pub(crate) optional_indices: Vec<usize>,
}

/// An entry of a map or a field of a struct, with its node number.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EntryPart {
    pub(crate) id: u64,
    pub(crate) expr: EntryExpr,
}

/// Entry of a struct or map expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum EntryExpr {
    StructField(StructFieldExpr),
    MapEntry(MapEntryExpr),
}

/// A field of a struct.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StructFieldExpr {
    pub(crate) field: String,
    pub(crate) value: Expression,
    pub(crate) optional: bool,
}

/// An entry of a map.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MapEntryExpr {
    pub(crate) key: Expression,
    pub(crate) value: Expression,
    pub(crate) optional: bool,
}

/// A loop over the items of `iter_range`, with an accumulator variable for the result.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ComprehensionExpr {
    pub(crate) iter_range: Expression,
    pub(crate) iter_var: String,
    pub(crate) iter_var2: Option<String>,
    pub(crate) accu_var: String,
    pub(crate) accu_init: Expression,
    pub(crate) loop_cond: Expression,
    pub(crate) loop_step: Expression,
    pub(crate) result: Expression,
}
