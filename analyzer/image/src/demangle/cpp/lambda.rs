//! Reads lambdas and the declarations of template parameters.

use super::parser::Parser;
use super::{Id, Node};

impl Parser<'_> {
    /// A lambda after `Ul`.
    pub(super) fn lambda(&mut self) -> Option<Id> {
        let head = self.template_head()?;
        let parameters = self.parameters()?;
        self.expect("E")?;
        let index = self.index()?;
        Some(self.add(Node::Lambda(head, parameters, index + 1)))
    }

    /// Declarations of template parameters, if any.
    pub(super) fn template_head(&mut self) -> Option<Id> {
        let mut declared = Vec::new();
        while self.peek() == b'T' && matches!(self.peek_at(1), b'y' | b'n' | b't' | b'p') {
            declared.push(self.template_declaration()?);
        }
        Some(self.add(Node::Head(declared)))
    }

    /// `<template-param-decl>`
    fn template_declaration(&mut self) -> Option<Id> {
        self.nested(|parser| {
            let declaration = if parser.eat("Ty") {
                Node::TypeParameter
            } else if parser.eat("Tn") {
                Node::ValueParameter(parser.type_()?)
            } else if parser.eat("Tp") {
                Node::PackParameter(parser.template_declaration()?)
            } else {
                parser.expect("Tt")?;
                let declared = parser.list(Self::template_declaration)?;
                Node::TemplateParameter(parser.add(Node::Head(declared)))
            };
            Some(parser.add(declaration))
        })
    }
}
