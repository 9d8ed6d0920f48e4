//! Reads expressions, which stand in template arguments and `decltype`.

use super::parser::Parser;
use super::{Id, Node};

/// How the operands of an operator follow it.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Form {
    Unary,
    Postfix,
    Binary,
    /// Has its own production.
    Other,
}

/// `<operator-name>`: its text, and the form of its operands in expressions.
pub(super) fn operator(code: &str) -> Option<(&'static str, Form)> {
    use Form::{Binary, Other, Postfix, Unary};
    Some(match code {
        "aN" => ("&=", Binary),
        "aS" => ("=", Binary),
        "aa" => ("&&", Binary),
        "ad" => ("&", Unary),
        "an" => ("&", Binary),
        "aw" => ("co_await ", Unary),
        "cl" => ("()", Other),
        "cm" => (",", Binary),
        "co" => ("~", Unary),
        "dV" => ("/=", Binary),
        "da" => ("delete[] ", Unary),
        "de" => ("*", Unary),
        "dl" => ("delete ", Unary),
        "ds" => (".*", Binary),
        "dt" => (".", Binary),
        "dv" => ("/", Binary),
        "eO" => ("^=", Binary),
        "eo" => ("^", Binary),
        "eq" => ("==", Binary),
        "ge" => (">=", Binary),
        "gt" => (">", Binary),
        "ix" => ("[]", Binary),
        "lS" => ("<<=", Binary),
        "le" => ("<=", Binary),
        "ls" => ("<<", Binary),
        "lt" => ("<", Binary),
        "mI" => ("-=", Binary),
        "mL" => ("*=", Binary),
        "mi" => ("-", Binary),
        "ml" => ("*", Binary),
        "mm" => ("--", Postfix),
        "na" => ("new[]", Other),
        "ne" => ("!=", Binary),
        "ng" => ("-", Unary),
        "nt" => ("!", Unary),
        "nw" => ("new", Other),
        "oR" => ("|=", Binary),
        "oo" => ("||", Binary),
        "or" => ("|", Binary),
        "pL" => ("+=", Binary),
        "pl" => ("+", Binary),
        "pm" => ("->*", Binary),
        "pp" => ("++", Postfix),
        "ps" => ("+", Unary),
        "pt" => ("->", Binary),
        "qu" => ("?", Other),
        "rM" => ("%=", Binary),
        "rS" => (">>=", Binary),
        "rm" => ("%", Binary),
        "rs" => (">>", Binary),
        "ss" => ("<=>", Binary),
        _ => return None,
    })
}

/// `L <type> <value> E`, or the encoding of a function or object.
pub(super) fn literal(parser: &mut Parser<'_>) -> Option<Id> {
    parser.expect("L")?;
    if parser.eat("_Z") || parser.eat("Z") {
        let of = parser.encoding()?;
        parser.expect("E")?;
        return Some(of);
    }
    let type_ = parser.type_()?;
    let value = parser.take_while(|byte| byte != b'E');
    parser.expect("E")?;
    Some(parser.add(Node::Literal(type_, value)))
}

pub(super) fn expression(parser: &mut Parser<'_>) -> Option<Id> {
    parser.nested(any_expression)
}

fn any_expression(parser: &mut Parser<'_>) -> Option<Id> {
    match parser.peek() {
        b'L' => return literal(parser),
        b'T' => return parser.template_parameter(),
        b'0'..=b'9' => {
            let name = parser.unqualified(None)?;
            return with_arguments(parser, name);
        }
        b'u' => {
            parser.advance(1);
            let name = parser.source_name()?;
            let name = parser.add(Node::Text(name));
            let arguments = parser.list(Parser::template_argument)?;
            return Some(parser.add(Node::Call(name, arguments)));
        }
        b'f' if matches!(parser.peek_at(1), b'p' | b'L')
            && (parser.peek_at(1) == b'p' || parser.peek_at(2).is_ascii_digit()) =>
        {
            return function_parameter(parser);
        }
        _ => {}
    }
    let code = parser.take(2)?;
    match code {
        "sr" => unresolved(parser),
        "on" => {
            let name = parser.unqualified(None)?;
            with_arguments(parser, name)
        }
        "gs" => {
            let of = expression(parser)?;
            Some(parser.add(Node::Unary("::", of)))
        }
        "sp" => {
            let of = expression(parser)?;
            Some(parser.add(Node::Expansion(of)))
        }
        "sZ" => {
            let of = expression(parser)?;
            Some(parser.add(Node::PackLength(of)))
        }
        "sP" => {
            let items = parser.list(Parser::template_argument)?;
            let pack = parser.add(Node::Pack(items));
            Some(parser.add(Node::PackLength(pack)))
        }
        "st" | "at" | "ti" => {
            let of = parser.type_()?;
            let of = parser.add(Node::Cast(of, Vec::new()));
            let text = match code {
                "st" => "sizeof ",
                "at" => "alignof ",
                _ => "typeid ",
            };
            Some(parser.add(Node::Unary(text, of)))
        }
        "sz" | "az" | "te" | "nx" | "tw" => {
            let of = expression(parser)?;
            let text = match code {
                "sz" => "sizeof ",
                "az" => "alignof ",
                "te" => "typeid ",
                "nx" => "noexcept",
                _ => "throw ",
            };
            Some(parser.add(Node::Unary(text, of)))
        }
        "tr" => Some(parser.add(Node::Text("throw"))),
        "cv" => {
            let to = parser.type_()?;
            let values = if parser.eat("_") {
                parser.list(expression)?
            } else {
                vec![expression(parser)?]
            };
            Some(parser.add(Node::Cast(to, values)))
        }
        "tl" => {
            let of = parser.type_()?;
            let values = parser.list(expression)?;
            Some(parser.add(Node::Braced(Some(of), values)))
        }
        "il" => {
            let values = parser.list(expression)?;
            Some(parser.add(Node::Braced(None, values)))
        }
        "di" => {
            let field = parser.source_name()?;
            let value = expression(parser)?;
            Some(parser.add(Node::Field(field, value)))
        }
        "dx" | "dX" => {
            let first = expression(parser)?;
            let last = match code {
                "dX" => Some(expression(parser)?),
                _ => None,
            };
            let value = expression(parser)?;
            Some(parser.add(Node::Elements(first, last, value)))
        }
        "nw" | "na" => new(parser),
        "dc" | "sc" | "cc" | "rc" => {
            let to = parser.type_()?;
            let value = expression(parser)?;
            let text = match code {
                "dc" => "dynamic_cast",
                "sc" => "static_cast",
                "cc" => "const_cast",
                _ => "reinterpret_cast",
            };
            Some(parser.add(Node::NamedCast(text, to, value)))
        }
        "cl" | "cp" => {
            let callee = expression(parser)?;
            let values = parser.list(expression)?;
            Some(parser.add(Node::Call(callee, values)))
        }
        "qu" => {
            let condition = expression(parser)?;
            let then = expression(parser)?;
            let otherwise = expression(parser)?;
            Some(parser.add(Node::Conditional(condition, then, otherwise)))
        }
        "fl" | "fr" | "fL" | "fR" => fold(parser, code),
        _ => {
            let (text, form) = operator(code)?;
            match form {
                Form::Unary => {
                    let of = expression(parser)?;
                    Some(parser.add(Node::Unary(text, of)))
                }
                Form::Postfix => {
                    let is_prefix = parser.eat("_");
                    let of = expression(parser)?;
                    Some(parser.add(if is_prefix {
                        Node::Unary(text, of)
                    } else {
                        Node::Postfix(text, of)
                    }))
                }
                Form::Binary => {
                    let left = expression(parser)?;
                    let right = expression(parser)?;
                    Some(parser.add(Node::Binary(text, left, right)))
                }
                Form::Other => None,
            }
        }
    }
}

fn with_arguments(parser: &mut Parser<'_>, name: Id) -> Option<Id> {
    if parser.peek() != b'I' {
        return Some(name);
    }
    let arguments = parser.template_arguments()?;
    Some(parser.add(Node::Template(name, arguments)))
}

/// `<unresolved-name>` after `sr`: a member of a type that depends on template parameters. gcc
/// writes the type, and clang the same for scopes in a template parameter. After scopes that are
/// plain names, clang writes an `E`.
fn unresolved(parser: &mut Parser<'_>) -> Option<Id> {
    if !parser.peek().is_ascii_digit() {
        let scope = parser.type_()?;
        return member(parser, scope);
    }
    let starts_member = |rest: &str| {
        rest.starts_with(|first: char| first.is_ascii_digit())
            || rest.starts_with("on")
            || rest.starts_with("dn")
    };
    let name = parser.unqualified(None)?;
    let mut scope = with_arguments(parser, name)?;
    while !parser.eat_before("E", starts_member) {
        let name = parser.unqualified(None)?;
        let name = parser.add(Node::Nested(scope, name));
        scope = with_arguments(parser, name)?;
        if parser.peek() == b'E' && !starts_member(parser.rest().get(1..)?) {
            return Some(scope);
        }
    }
    member(parser, scope)
}

/// What follows `nw` or `na`: `[placement] _ <type> [initializer] E`.
fn new(parser: &mut Parser<'_>) -> Option<Id> {
    let mut placement = Vec::new();
    while !parser.eat("_") {
        placement.push(expression(parser)?);
    }
    let of = parser.type_()?;
    let new = parser.add(Node::New(placement, of));
    if parser.eat("pi") {
        let values = parser.list(expression)?;
        return Some(parser.add(Node::Call(new, values)));
    }
    let node = if parser.eat("il") {
        let values = parser.list(expression)?;
        parser.add(Node::Braced(Some(new), values))
    } else {
        new
    };
    parser.expect("E")?;
    Some(node)
}

fn member(parser: &mut Parser<'_>, scope: Id) -> Option<Id> {
    // Marks of operators and destructors.
    let _ = parser.eat("on") || parser.eat("dn");
    let name = parser.unqualified(Some(scope))?;
    let name = parser.add(Node::Nested(scope, name));
    with_arguments(parser, name)
}

/// `fp_`, `fpT` and `fL0p_`: a parameter of the function or of an enclosing one.
fn function_parameter(parser: &mut Parser<'_>) -> Option<Id> {
    parser.expect("f")?;
    if parser.eat("L") {
        parser.number()?;
    }
    parser.expect("p")?;
    if parser.eat("T") {
        return Some(parser.add(Node::Text("this")));
    }
    parser.cv_qualifiers();
    let index = parser.index()?;
    Some(parser.add(Node::FunctionParameter(index + 1)))
}

fn fold(parser: &mut Parser<'_>, code: &str) -> Option<Id> {
    let operation = parser.take(2)?;
    let (text, Form::Binary) = operator(operation)? else {
        return None;
    };
    let first = expression(parser)?;
    let (left, right) = match code {
        "fl" => (None, Some(first)),
        "fr" => (Some(first), None),
        _ => (Some(first), Some(expression(parser)?)),
    };
    Some(parser.add(Node::Fold(text, left, right)))
}
