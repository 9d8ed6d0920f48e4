//! Reads the names of objects that belong to a class, function or variable: vtables, thunks.

use super::parser::Parser;
use super::{Id, Node};

impl Parser<'_> {
    /// `<special-name>`
    pub(super) fn special(&mut self) -> Option<Id> {
        const OF_TYPES: [(&str, &str); 6] = [
            ("TV", "vtable for "),
            ("TT", "VTT for "),
            ("TI", "typeinfo for "),
            ("TS", "typeinfo name for "),
            ("TF", "typeinfo fn for "),
            ("TJ", "java Class for "),
        ];
        const OF_NAMES: [(&str, &str); 3] = [
            ("GV", "guard variable for "),
            ("TW", "TLS wrapper function for "),
            ("TH", "TLS init function for "),
        ];
        for (code, text) in OF_TYPES {
            if self.eat(code) {
                let of = self.type_()?;
                return Some(self.add(Node::Special(text, of)));
            }
        }
        for (code, text) in OF_NAMES {
            if self.eat(code) {
                let of = self.name(None)?;
                return Some(self.add(Node::Special(text, of)));
            }
        }
        if self.eat("TC") {
            let derived = self.type_()?;
            self.number()?;
            self.expect("_")?;
            let base = self.type_()?;
            return Some(self.add(Node::ConstructionVtable(base, derived)));
        }
        if self.eat("TA") {
            let of = self.template_argument()?;
            return Some(self.add(Node::Special("template parameter object for ", of)));
        }
        let text = if self.eat("Tc") {
            self.call_offset()?;
            self.call_offset()?;
            "covariant return thunk to "
        } else if matches!((self.peek(), self.peek_at(1)), (b'T', b'h' | b'v')) {
            self.expect("T")?;
            match self.call_offset()? {
                b'h' => "non-virtual thunk to ",
                _ => "virtual thunk to ",
            }
        } else if self.eat("GTt") {
            "transaction clone for "
        } else if self.eat("GTn") {
            "non-transaction clone for "
        } else if self.eat("GA") {
            "hidden alias for "
        } else if self.eat("GI") {
            let of = self.module(None)?;
            return Some(self.add(Node::Special("initializer for module ", of)));
        } else if self.eat("GR") {
            let of = self.name(None)?;
            self.index_of_substitution()?;
            return Some(self.add(Node::Special("reference temporary for ", of)));
        } else {
            return None;
        };
        let of = self.encoding()?;
        Some(self.add(Node::Special(text, of)))
    }

    /// A substitution and, if it is a module, the name in the module. Such a name is new.
    pub(super) fn substituted(&mut self, is_prefix: bool, class: Option<Id>) -> Option<(Id, bool)> {
        let of = self.substitution(is_prefix)?;
        if !matches!(self.node(of), Node::Module { .. }) {
            return Some((of, false));
        }
        let module = self.module(Some(of));
        Some((self.unqualified_in(module, class)?, true))
    }

    /// `<module-name>`: `W3fooW3barWP4part` is `foo.bar:part`.
    pub(super) fn module(&mut self, mut outer: Option<Id>) -> Option<Id> {
        while self.eat("W") {
            let is_partition = self.eat("P");
            let name = self.source_name()?;
            let module = self.add(Node::Module {
                outer,
                is_partition,
                name,
            });
            self.substitutable(module);
            outer = Some(module);
        }
        outer
    }

    /// `<call-offset>`; returns its kind, `h` or `v`.
    fn call_offset(&mut self) -> Option<u8> {
        let kind = self.peek();
        let numbers = match kind {
            b'h' => 1,
            b'v' => 2,
            _ => return None,
        };
        self.advance(1);
        for _ in 0..numbers {
            self.eat("n");
            self.number()?;
            self.expect("_")?;
        }
        Some(kind)
    }
}
