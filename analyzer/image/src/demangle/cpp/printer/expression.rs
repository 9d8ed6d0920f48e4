//! Prints packs and expressions.

use super::{Id, Node, Printer, Qualifiers};

impl<'t> Printer<'t> {
    /// The items of the first pack in a pattern.
    fn pack_in(&mut self, id: Id) -> Option<usize> {
        let nodes = self.nodes;
        if !self.enter() {
            return None;
        }
        self.depth += 1;
        let in_lambda = self.context.lambda.is_some();
        let mut first = |ids: &[Id]| ids.iter().find_map(|&id| self.pack_in(id));
        let found = match &nodes[id] {
            // The packs of a generic lambda stand for any number.
            Node::Parameter(_) if in_lambda => None,
            Node::Parameter(index) => match self.argument(*index, self.context) {
                Some(argument) => match &nodes[argument.id] {
                    Node::Pack(items) => Some(items.len()),
                    _ => None,
                },
                None => None,
            },
            Node::Nested(a, b) | Node::Local(a, b) | Node::MemberPointer(a, b) => first(&[*a, *b]),
            Node::Template(of, list)
            | Node::Cast(of, list)
            | Node::Call(of, list)
            | Node::New(list, of) => first(&[*of]).or_else(|| first(list)),
            Node::Braced(of, list) => of.and_then(|of| first(&[of])).or_else(|| first(list)),
            Node::Function {
                result, parameters, ..
            } => result
                .and_then(|of| first(&[of]))
                .or_else(|| first(parameters)),
            Node::Array(length, of) => length
                .and_then(|length| first(&[length]))
                .or_else(|| first(&[*of])),
            Node::Qualified(of, _)
            | Node::Suffixed(of, _)
            | Node::Pointer(of)
            | Node::LeftReference(of)
            | Node::RightReference(of)
            | Node::Vector(_, of)
            | Node::Decltype(of)
            | Node::Unary(_, of)
            | Node::Postfix(_, of)
            | Node::Tagged(of, _)
            | Node::InModule(of, _)
            | Node::Field(_, of)
            | Node::Elements(_, _, of)
            | Node::Constructor(of)
            | Node::Destructor(of)
            | Node::Conversion(of) => first(&[*of]),
            Node::Binary(_, a, b) | Node::NamedCast(_, a, b) => first(&[*a, *b]),
            Node::Conditional(a, b, c) => first(&[*a, *b, *c]),
            _ => None,
        };
        self.depth -= 1;
        found
    }

    pub(super) fn expansion(&mut self, of: Id) {
        let Some(len) = self.pack_in(of) else {
            self.operand(of);
            self.push("...");
            return;
        };
        let outer = self.context;
        for index in 0..len {
            if index > 0 {
                self.push(", ");
            }
            self.context.element = Some(index);
            self.print(of);
        }
        self.context = outer;
    }

    /// An operand, in parentheses unless it is a name.
    fn operand(&mut self, id: Id) {
        let is_simple = matches!(
            self.nodes[id],
            Node::Text(_)
                | Node::Nested(..)
                | Node::Braced(..)
                | Node::FunctionParameter(_)
                | Node::New(..)
                | Node::Standard { .. }
        );
        if !is_simple {
            self.push("(");
        }
        self.print(id);
        if !is_simple {
            self.push(")");
        }
    }

    pub(super) fn expression(&mut self, node: &'t Node<'t>) {
        match node {
            Node::Literal(type_, value) => self.literal(*type_, value),
            Node::Unary(text, of) => self.unary(text, *of),
            Node::Postfix(text, of) => {
                self.operand(*of);
                self.push(text);
            }
            Node::Binary(text, left, right) => {
                // `>` would end the template arguments.
                let is_greater = *text == ">";
                if is_greater {
                    self.push("(");
                }
                self.operand(*left);
                if *text == "[]" {
                    self.push("[");
                    self.print(*right);
                    self.push("]");
                } else {
                    self.push(text);
                    self.operand(*right);
                }
                if is_greater {
                    self.push(")");
                }
            }
            Node::Conditional(condition, then, otherwise) => {
                self.operand(*condition);
                self.push("?");
                self.operand(*then);
                self.push(" : ");
                self.operand(*otherwise);
            }
            Node::NamedCast(text, to, value) => {
                self.push(text);
                self.push("<");
                self.print(*to);
                self.push(">(");
                self.print(*value);
                self.push(")");
            }
            Node::Cast(to, values) => {
                self.push("(");
                self.print(*to);
                self.push(")");
                if let [value] = values[..] {
                    self.operand(value);
                } else if !values.is_empty() {
                    self.push("(");
                    self.list(values);
                    self.push(")");
                }
            }
            Node::Call(callee, values) => {
                match self.nodes[*callee] {
                    Node::Encoding(name, _) => self.operand(name),
                    _ => self.operand(*callee),
                }
                self.push("(");
                self.list(values);
                self.push(")");
            }
            Node::Braced(of, values) => {
                if let Some(of) = of {
                    self.print(*of);
                }
                self.push("{");
                self.list(values);
                self.push("}");
            }
            Node::Field(field, value) => {
                self.push(".");
                self.push(field);
                self.designated(*value);
            }
            Node::Elements(first, last, value) => {
                self.push("[");
                self.print(*first);
                if let Some(last) = last {
                    self.push(" ... ");
                    self.print(*last);
                }
                self.push("]");
                self.designated(*value);
            }
            Node::New(placement, of) => {
                self.push("new ");
                if !placement.is_empty() {
                    self.push("(");
                    self.list(placement);
                    self.push(") ");
                }
                self.print(*of);
            }
            Node::FunctionParameter(index) => self.numbered("{parm#", *index, "}"),
            Node::PackLength(of) => {
                let len = match &self.nodes[*of] {
                    Node::Pack(items) => Some(items.len()),
                    _ => self.pack_in(*of),
                };
                self.numbered("", len.unwrap_or(0), "");
            }
            Node::Fold(text, left, right) => {
                self.push("(");
                match left {
                    Some(left) => self.operand(*left),
                    None => self.push("..."),
                }
                self.push(text);
                if left.is_some() && right.is_some() {
                    self.push("...");
                    self.push(text);
                }
                match right {
                    Some(right) => self.operand(*right),
                    None => self.push("..."),
                }
                self.push(")");
            }
            _ => self.failed = true,
        }
    }

    /// The value after a designator, which may be a further designator.
    fn designated(&mut self, value: Id) {
        if matches!(self.nodes[value], Node::Field(..) | Node::Elements(..)) {
            self.print(value);
        } else {
            self.push("=");
            self.operand(value);
        }
    }

    fn unary(&mut self, text: &str, of: Id) {
        self.push(text);
        match (text, &self.nodes[of]) {
            // The address of a function goes without parameters, unless it has qualifiers.
            ("&", Node::Encoding(name, function))
                if matches!(self.nodes[*name], Node::Nested(..))
                    && self.is_unqualified(*function) =>
            {
                self.print(*name);
            }
            ("::", _) | (_, Node::Cast(..)) if text != "&" => self.print(of),
            _ => self.operand(of),
        }
    }

    fn is_unqualified(&self, function: Id) -> bool {
        matches!(
            self.nodes[function],
            Node::Function { qualifiers, .. } if qualifiers == Qualifiers::NONE
        )
    }

    fn literal(&mut self, type_: Id, value: &str) {
        let (is_negative, digits) = match value.strip_prefix('n') {
            Some(digits) => (true, digits),
            None => (false, value),
        };
        let name = match self.node(self.placed(type_)) {
            (Node::Builtin(name), _) => *name,
            _ => "",
        };
        let suffix = match name {
            "bool" if value == "0" => return self.push("false"),
            "bool" if value == "1" => return self.push("true"),
            "int" => Some(""),
            "unsigned int" => Some("u"),
            "long" => Some("l"),
            "unsigned long" => Some("ul"),
            "long long" => Some("ll"),
            "unsigned long long" => Some("ull"),
            _ => None,
        };
        if suffix.is_none() {
            self.push("(");
            self.print(type_);
            self.push(")");
        }
        if is_negative {
            self.push("-");
        }
        let is_float = matches!(name, "float" | "double" | "long double" | "__float128");
        if is_float {
            self.push("[");
        }
        self.push(digits);
        if is_float {
            self.push("]");
        }
        self.push(suffix.unwrap_or_default());
    }
}
