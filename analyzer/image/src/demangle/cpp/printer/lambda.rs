//! Prints lambdas and their template parameters, which have no names: `$T0` stands for a type,
//! `$N0` for a value and `$TT0` for a template.

use super::{Id, Node, Printer};

impl Printer<'_> {
    pub(super) fn lambda(&mut self, head: Id, parameters: &[Id], number: usize) {
        self.push("{lambda");
        let outer = self.context.lambda.replace(head);
        let nodes = self.nodes;
        if let Node::Head(declared) = &nodes[head]
            && !declared.is_empty()
        {
            self.head(declared, true);
        }
        self.push("(");
        self.list(parameters);
        self.context.lambda = outer;
        self.numbered(")#", number, "}");
    }

    /// A template parameter of a lambda. Those that it does not declare belong to `auto`.
    pub(super) fn lambda_parameter(&mut self, head: Id, index: usize) {
        let nodes = self.nodes;
        match &nodes[head] {
            Node::Head(declared) if index < declared.len() => {
                self.parameter_name(declared[index], index);
            }
            _ => self.numbered("auto:", index + 1, ""),
        }
    }

    fn head(&mut self, declared: &[Id], is_named: bool) {
        self.push("<");
        for (index, &declaration) in declared.iter().enumerate() {
            if index > 0 {
                self.push(", ");
            }
            self.declaration(declaration);
            if is_named {
                self.push(" ");
                self.parameter_name(declaration, index);
            }
        }
        self.push(">");
    }

    fn declaration(&mut self, declaration: Id) {
        self.deeper(|printer| {
            let nodes = printer.nodes;
            match &nodes[declaration] {
                Node::TypeParameter => printer.push("typename"),
                Node::ValueParameter(of) => printer.print(*of),
                Node::TemplateParameter(head) => {
                    printer.push("template");
                    if let Node::Head(declared) = &nodes[*head] {
                        printer.head(declared, false);
                    }
                    printer.push(" class");
                }
                Node::PackParameter(of) => {
                    printer.declaration(*of);
                    printer.push("...");
                }
                _ => printer.failed = true,
            }
        });
    }

    fn parameter_name(&mut self, mut declaration: Id, index: usize) {
        while let Node::PackParameter(of) = self.nodes[declaration] {
            declaration = of;
        }
        let kind = match self.nodes[declaration] {
            Node::ValueParameter(_) => "$N",
            Node::TemplateParameter(_) => "$TT",
            _ => "$T",
        };
        self.numbered(kind, index, "");
    }
}
