//! Demangles C++ names as binutils and gdb print them.
//!
//! `parser` turns a mangled name into a tree and `printer` turns the tree into text. Productions
//! in angle brackets are those of the Itanium C++ ABI, section 5.1. Crates for this drop the first
//! parameter of constructor templates and move `const` and `&` between expanded parameters.

mod expression;
mod lambda;
mod parser;
mod printer;
mod special;
mod types;

/// Index of a node in [`Tree::nodes`].
type Id = usize;

/// Maximum nesting of a name, far beyond real names, and safe on any stack.
const MAX_DEPTH: usize = 200;

const CONST: u8 = 1;
const VOLATILE: u8 = 2;
const RESTRICT: u8 = 4;

/// Reference qualifier of a member function.
#[derive(Clone, Copy, PartialEq)]
enum Reference {
    None,
    Left,
    Right,
}

/// Qualifiers of a function type or a member function.
#[derive(Clone, Copy, PartialEq)]
struct Qualifiers {
    cv: u8,
    reference: Reference,
}

impl Qualifiers {
    const NONE: Self = Self {
        cv: 0,
        reference: Reference::None,
    };
}

enum Node<'a> {
    /// Text that is printed unchanged.
    Text(&'a str),
    /// A class with an abbreviation of its own: `Ss`.
    Standard {
        text: &'static str,
        base: &'static str,
    },
    /// `prefix::name`
    Nested(Id, Id),
    /// `function()::entity`
    Local(Id, Id),
    /// `name<arguments>`
    Template(Id, Vec<Id>),
    Pack(Vec<Id>),
    /// A template parameter. What it stands for depends on where it is printed, because a
    /// substitution can repeat it in another function.
    Parameter(usize),
    Expansion(Id),
    Constructor(Id),
    Destructor(Id),
    Operator(&'static str),
    Conversion(Id),
    LiteralOperator(&'a str),
    /// Template parameters of its own, parameters and number.
    Lambda(Id, Vec<Id>, usize),
    /// Parameters of a template or a lambda: `<typename $T0>`.
    Head(Vec<Id>),
    TypeParameter,
    ValueParameter(Id),
    /// A parameter that is a template, and its head.
    TemplateParameter(Id),
    PackParameter(Id),
    Unnamed(usize),
    DefaultArgument(usize, Id),
    Binding(Vec<Id>),
    /// `outer.name`, or `outer:name` for a partition.
    Module {
        outer: Option<Id>,
        is_partition: bool,
        name: &'a str,
    },
    /// `name@module`
    InModule(Id, Id),
    /// `name[abi:tag]`
    Tagged(Id, &'a str),

    Builtin(&'static str),
    Qualified(Id, u8),
    /// A type followed by a word: `_Complex`.
    Suffixed(Id, &'a str),
    Pointer(Id),
    LeftReference(Id),
    RightReference(Id),
    Function {
        result: Option<Id>,
        parameters: Vec<Id>,
        /// `noexcept(false)`, `throw(int)`: the last one is printed first.
        specifications: Vec<Id>,
        qualifiers: Qualifiers,
    },
    Array(Option<Id>, Id),
    MemberPointer(Id, Id),
    Vector(Id, Id),
    Decltype(Id),

    /// A function's name and its type.
    Encoding(Id, Id),
    /// `vtable for type`
    Special(&'static str, Id),
    ConstructionVtable(Id, Id),
    Clone(Id, &'a str),

    Literal(Id, &'a str),
    Unary(&'static str, Id),
    Postfix(&'static str, Id),
    Binary(&'static str, Id, Id),
    Conditional(Id, Id, Id),
    /// A cast with a keyword: `static_cast<type>(value)`.
    NamedCast(&'static str, Id, Id),
    /// `(type)(values)`
    Cast(Id, Vec<Id>),
    Call(Id, Vec<Id>),
    Braced(Option<Id>, Vec<Id>),
    /// `.field=value` in braces.
    Field(&'a str, Id),
    /// `[first ... last]=value` in braces.
    Elements(Id, Option<Id>, Id),
    /// `new (placement) type`
    New(Vec<Id>, Id),
    FunctionParameter(usize),
    PackLength(Id),
    /// Operator, left and right operand of a fold expression; the missing one is `...`.
    Fold(&'static str, Option<Id>, Option<Id>),
}

/// A parsed name.
struct Tree<'a> {
    nodes: Vec<Node<'a>>,
    root: Id,
}

/// The plain text of a mangled C++ name. A `short` name has no parameters, return type and
/// qualifiers.
pub(super) fn demangle(name: &str, short: bool) -> Option<String> {
    if let Some(keyed) = name
        .strip_prefix("_GLOBAL_")
        .and_then(|rest| rest.strip_prefix(['_', '.', '$']))
    {
        let (what, of) = keyed.split_at_checked(2)?;
        let what = match what {
            "I_" => "global constructors keyed to ",
            "D_" => "global destructors keyed to ",
            _ => return None,
        };
        let of = demangle(of, short).unwrap_or_else(|| of.to_owned());
        return Some(format!("{what}{of}"));
    }
    let tree = parser::parse(name)?;
    printer::print(&tree, short)
}
