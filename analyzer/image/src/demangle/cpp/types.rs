//! Reads types.

use super::parser::Parser;
use super::{CONST, Id, Node, Qualifiers, RESTRICT, Reference, VOLATILE, expression};

fn builtin(code: u8) -> Option<&'static str> {
    Some(match code {
        b'v' => "void",
        b'w' => "wchar_t",
        b'b' => "bool",
        b'c' => "char",
        b'a' => "signed char",
        b'h' => "unsigned char",
        b's' => "short",
        b't' => "unsigned short",
        b'i' => "int",
        b'j' => "unsigned int",
        b'l' => "long",
        b'm' => "unsigned long",
        b'x' => "long long",
        b'y' => "unsigned long long",
        b'n' => "__int128",
        b'o' => "unsigned __int128",
        b'f' => "float",
        b'd' => "double",
        b'e' => "long double",
        b'g' => "__float128",
        b'z' => "...",
        _ => return None,
    })
}

/// Builtin types with two letters, the first of which is a `D`.
fn long_builtin(code: u8) -> Option<&'static str> {
    Some(match code {
        b'a' => "auto",
        b'c' => "decltype(auto)",
        b'n' => "decltype(nullptr)",
        b'd' => "decimal64",
        b'e' => "decimal128",
        b'f' => "decimal32",
        b'h' => "half",
        b's' => "char16_t",
        b'i' => "char32_t",
        b'u' => "char8_t",
        _ => return None,
    })
}

impl<'a> Parser<'a> {
    /// `<type>`
    pub(super) fn type_(&mut self) -> Option<Id> {
        self.nested(Self::any_type)
    }

    fn any_type(&mut self) -> Option<Id> {
        if let Some(name) = builtin(self.peek()) {
            self.advance(1);
            return Some(self.add(Node::Builtin(name)));
        }
        let next = self.peek_at(1);
        let type_ = match self.peek() {
            b'r' | b'V' | b'K' => {
                let cv = self.cv_qualifiers();
                if self.is_function_type() {
                    self.function_type(cv)?
                } else {
                    let of = self.type_()?;
                    self.add(Node::Qualified(of, cv))
                }
            }
            b'P' => {
                self.advance(1);
                let to = self.type_()?;
                self.add(Node::Pointer(to))
            }
            b'R' => {
                self.advance(1);
                let to = self.type_()?;
                self.add(Node::LeftReference(to))
            }
            b'O' => {
                self.advance(1);
                let to = self.type_()?;
                self.add(Node::RightReference(to))
            }
            b'C' | b'G' => {
                let is_complex = self.peek() == b'C';
                self.advance(1);
                let of = self.type_()?;
                let word = if is_complex { "_Complex" } else { "_Imaginary" };
                self.add(Node::Suffixed(of, word))
            }
            b'A' => self.array()?,
            b'M' => {
                self.advance(1);
                let class = self.type_()?;
                let member = self.type_()?;
                self.add(Node::MemberPointer(class, member))
            }
            b'T' if matches!(next, b's' | b'u' | b'e') => {
                self.advance(2);
                self.name(None)?
            }
            b'T' => {
                let parameter = self.template_parameter()?;
                // The type of a conversion has no arguments: these are the operator's own.
                self.with_arguments(parameter, true)?
            }
            b'D' if matches!(next, b't' | b'T') => self.decltype()?,
            b'D' if next == b'p' => {
                self.advance(2);
                let of = self.type_()?;
                self.add(Node::Expansion(of))
            }
            b'D' if next == b'v' => self.vector()?,
            b'D' if matches!(next, b'F' | b'B' | b'U') => return self.sized_number(),
            b'D' | b'F' if self.is_function_type() => self.function_type(0)?,
            b'D' => {
                let name = long_builtin(next)?;
                self.advance(2);
                return Some(self.add(Node::Builtin(name)));
            }
            b'S' if next != b't' => {
                let (name, is_new) = self.substituted(false, None)?;
                if !is_new && self.peek() != b'I' {
                    return Some(name);
                }
                self.with_arguments(name, is_new)?
            }
            b'u' => {
                self.advance(1);
                let name = self.source_name()?;
                let name = self.add(Node::Text(name));
                self.with_arguments(name, false)?
            }
            b'U' if !matches!(next, b'l' | b't') => {
                self.advance(1);
                let word = self.source_name()?;
                if self.peek() == b'I' {
                    self.template_arguments()?;
                }
                let of = self.type_()?;
                self.add(Node::Suffixed(of, word))
            }
            _ => self.name(None)?,
        };
        self.substitutable(type_);
        Some(type_)
    }

    /// Adds the template arguments that follow `name`.
    fn with_arguments(&mut self, name: Id, is_new: bool) -> Option<Id> {
        if self.peek() != b'I' || is_new && self.in_conversion() {
            return Some(name);
        }
        if is_new {
            self.substitutable(name);
        }
        let arguments = self.template_arguments()?;
        Some(self.add(Node::Template(name, arguments)))
    }

    fn is_function_type(&self) -> bool {
        self.peek() == b'F'
            || self.peek() == b'D' && matches!(self.peek_at(1), b'o' | b'O' | b'w' | b'x')
    }

    fn function_type(&mut self, cv: u8) -> Option<Id> {
        let mut specifications = Vec::new();
        while !self.eat("F") {
            let specification = if self.eat("Do") {
                Node::Text("noexcept")
            } else if self.eat("DO") {
                let condition = expression::expression(self)?;
                self.expect("E")?;
                Node::Call(self.add(Node::Text("noexcept")), vec![condition])
            } else if self.eat("Dw") {
                let thrown = self.list(Self::type_)?;
                Node::Call(self.add(Node::Text("throw")), thrown)
            } else {
                self.expect("Dx")?;
                Node::Text("transaction_safe")
            };
            specifications.push(self.add(specification));
        }
        // C linkage.
        self.eat("Y");
        let result = self.type_()?;
        let parameters = self.parameters()?;
        let reference = if self.eat("R") {
            Reference::Left
        } else if self.eat("O") {
            Reference::Right
        } else {
            Reference::None
        };
        self.expect("E")?;
        Some(self.add(Node::Function {
            result: Some(result),
            parameters,
            specifications,
            qualifiers: Qualifiers { cv, reference },
        }))
    }

    fn dimension(&mut self) -> Option<Option<Id>> {
        if self.peek().is_ascii_digit() {
            let digits = self.take_while(|byte| byte.is_ascii_digit());
            let length = self.add(Node::Text(digits));
            self.expect("_")?;
            return Some(Some(length));
        }
        if self.eat("_") {
            return Some(None);
        }
        let length = expression::expression(self)?;
        self.expect("_")?;
        Some(Some(length))
    }

    fn array(&mut self) -> Option<Id> {
        self.expect("A")?;
        let length = self.dimension()?;
        let of = self.type_()?;
        Some(self.add(Node::Array(length, of)))
    }

    fn vector(&mut self) -> Option<Id> {
        self.expect("Dv")?;
        self.eat("_");
        let length = self.dimension()?;
        let of = self.type_()?;
        let length = length?;
        Some(self.add(Node::Vector(length, of)))
    }

    /// `_Float16`, `_BitInt(7)`.
    fn sized_number(&mut self) -> Option<Id> {
        if self.eat("DF") {
            let bits = self.number()?;
            let name = match (bits, self.peek()) {
                (16, b'b') => "std::bfloat16_t",
                (16, _) => "_Float16",
                (32, b'x') => "_Float32x",
                (32, _) => "_Float32",
                (64, b'x') => "_Float64x",
                (64, _) => "_Float64",
                (128, _) => "_Float128",
                _ => return None,
            };
            if !self.eat("b") && !self.eat("x") {
                self.expect("_")?;
            }
            return Some(self.add(Node::Builtin(name)));
        }
        let name = if self.peek_at(1) == b'B' {
            "_BitInt"
        } else {
            "unsigned _BitInt"
        };
        self.advance(2);
        let name = self.add(Node::Text(name));
        let bits = self.dimension()??;
        Some(self.add(Node::Call(name, vec![bits])))
    }

    pub(super) fn decltype(&mut self) -> Option<Id> {
        if !self.eat("DT") {
            self.expect("Dt")?;
        }
        let of = expression::expression(self)?;
        self.expect("E")?;
        Some(self.add(Node::Decltype(of)))
    }
}

/// The words of `cv` in the order in which they are printed.
pub(super) fn words(cv: u8) -> impl Iterator<Item = &'static str> {
    [
        (CONST, " const"),
        (VOLATILE, " volatile"),
        (RESTRICT, " restrict"),
    ]
    .into_iter()
    .filter_map(move |(bit, word)| (cv & bit != 0).then_some(word))
}
