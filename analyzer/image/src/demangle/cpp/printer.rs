//! Prints a parsed name. Types print around their name, hence in a left and a right part:
//! `void (*` and `)(int)`.

mod expression;
mod lambda;

use super::types::words;
use super::{Id, MAX_DEPTH, Node, Qualifiers, Reference, Tree};

/// Maximum length of a printed name. Substitutions can repeat a part of a name exponentially.
const MAX_LEN: usize = 256 << 10;
/// Maximum number of printed nodes: packs may be empty and still take time.
const MAX_STEPS: usize = 1 << 20;

pub(super) fn print(tree: &Tree<'_>, short: bool) -> Option<String> {
    let mut printer = Printer {
        nodes: &tree.nodes,
        out: String::with_capacity(tree.nodes.len() * 8),
        depth: 0,
        steps: 0,
        scopes: Vec::new(),
        context: Context::default(),
        emptied: usize::MAX,
        failed: false,
    };
    let mut root = tree.root;
    while let (true, &Node::Clone(of, _)) = (short, &tree.nodes[root]) {
        root = of;
    }
    match tree.nodes[root] {
        Node::Encoding(name, _) if short => {
            printer.in_scope_of(name, |printer| printer.print(name))
        }
        _ => printer.print(root),
    }
    (!printer.failed).then_some(printer.out)
}

/// What template parameters stand for.
#[derive(Clone, Copy, Default)]
struct Context {
    /// Index of the function in [`Printer::scopes`].
    scope: Option<usize>,
    /// Index of the element that packs print in an expansion.
    element: Option<usize>,
    /// The head of the lambda whose parameters are printed, in which template parameters are its
    /// own: `$T0` or `auto:1`.
    lambda: Option<Id>,
}

/// A node in the context in which it is printed.
#[derive(Clone, Copy)]
struct Placed {
    id: Id,
    context: Context,
}

struct Printer<'t> {
    nodes: &'t [Node<'t>],
    out: String,
    depth: usize,
    steps: usize,
    /// Functions with template arguments, innermost last: their name and the scope around them.
    scopes: Vec<(Id, Option<usize>)>,
    context: Context,
    /// Length of the text when an empty pack was left out at its end.
    emptied: usize,
    failed: bool,
}

impl<'t> Printer<'t> {
    /// Counts a step one level deeper; false when a limit is reached.
    fn enter(&mut self) -> bool {
        self.steps += 1;
        self.failed |=
            self.depth > 2 * MAX_DEPTH || self.steps > MAX_STEPS || self.out.len() > MAX_LEN;
        !self.failed
    }

    fn deeper(&mut self, print: impl FnOnce(&mut Self)) {
        if self.enter() {
            self.depth += 1;
            print(self);
            self.depth -= 1;
        }
    }

    fn push(&mut self, text: &str) {
        self.out.push_str(text);
    }

    fn print(&mut self, id: Id) {
        self.left(id);
        self.right(id);
    }

    fn placed(&self, id: Id) -> Placed {
        Placed {
            id,
            context: self.context,
        }
    }

    /// Arguments of the last template in a name.
    fn arguments_of(&self, name: Id) -> Option<&'t [Id]> {
        match &self.nodes[name] {
            Node::Template(_, arguments) => Some(arguments),
            Node::Local(_, entity) | Node::DefaultArgument(_, entity) => self.arguments_of(*entity),
            _ => None,
        }
    }

    /// The argument of a template parameter.
    fn argument(&self, index: usize, context: Context) -> Option<Placed> {
        let (name, around) = self.scopes[context.scope?];
        let id = *self.arguments_of(name)?.get(index)?;
        let context = Context {
            scope: around,
            ..Context::default()
        };
        Some(Placed { id, context })
    }

    /// Follows template parameters to the argument, and in an expansion to its element.
    fn resolve(&self, mut place: Placed) -> Placed {
        while let Node::Parameter(index) = self.nodes[place.id]
            && place.context.lambda.is_none()
            && let Some(mut argument) = self.argument(index, place.context)
        {
            if let Node::Pack(items) = &self.nodes[argument.id]
                && let Some(&item) = place.context.element.and_then(|index| items.get(index))
            {
                argument.id = item;
            }
            place = argument;
        }
        place
    }

    /// The node at `id` with template parameters resolved.
    fn node(&self, place: Placed) -> (&'t Node<'t>, Context) {
        let place = self.resolve(place);
        (&self.nodes[place.id], place.context)
    }

    /// Prints items with commas. Empty packs at the end leave no trace, others an empty item, as in
    /// binutils and gdb.
    fn list(&mut self, items: &[Id]) {
        let mut end = self.out.len();
        for (index, &item) in items.iter().enumerate() {
            if index > 0 {
                self.push(", ");
            }
            let start = self.out.len();
            self.print(item);
            if self.out.len() > start {
                end = self.out.len();
            }
        }
        if end < self.out.len() {
            self.out.truncate(end);
            self.emptied = end;
        }
    }

    fn is_array(&self, place: Placed) -> bool {
        match self.node(place) {
            (Node::Array(..), _) => true,
            (&Node::Qualified(id, _), context) => self.is_array(Placed { id, context }),
            _ => false,
        }
    }

    fn is_function(&self, place: Placed) -> bool {
        matches!(self.node(place), (Node::Function { .. }, _))
    }

    /// Whether a part of the type stands right of the name.
    fn has_right(&self, place: Placed) -> bool {
        // Too deep a type has failed on the left already.
        if self.failed {
            return false;
        }
        match self.node(place) {
            (Node::Array(..) | Node::Function { .. }, _) => true,
            (
                &(Node::Qualified(id, _)
                | Node::Pointer(id)
                | Node::LeftReference(id)
                | Node::RightReference(id)
                | Node::MemberPointer(_, id)),
                context,
            ) => self.has_right(Placed { id, context }),
            _ => false,
        }
    }

    /// The target of a reference, and whether references to it collapse to `&`.
    fn collapsed(&self, place: Placed, is_left: bool) -> (Placed, bool) {
        match self.node(place) {
            (&Node::LeftReference(id), context) => self.collapsed(Placed { id, context }, true),
            (&Node::RightReference(id), context) => self.collapsed(Placed { id, context }, is_left),
            _ => (place, is_left),
        }
    }

    fn open_declarator(&mut self, of: Placed) {
        if self.is_array(of) {
            self.push(" (");
        } else if self.is_function(of) {
            self.push("(");
        }
    }

    fn close_declarator(&mut self, of: Placed) {
        if self.is_array(of) || self.is_function(of) {
            self.push(")");
        }
    }

    fn left(&mut self, id: Id) {
        self.left_at(self.placed(id));
    }

    fn left_at(&mut self, place: Placed) {
        self.at(place, Self::left_of);
    }

    fn right(&mut self, id: Id) {
        self.right_at(self.placed(id));
    }

    fn right_at(&mut self, place: Placed) {
        self.at(place, Self::right_of);
    }

    fn at(&mut self, place: Placed, print: impl FnOnce(&mut Self, Id)) {
        self.deeper(|printer| {
            let Placed { id, context } = printer.resolve(place);
            let outer = std::mem::replace(&mut printer.context, context);
            print(printer, id);
            printer.context = outer;
        });
    }

    fn left_of(&mut self, id: Id) {
        let nodes = self.nodes;
        match &nodes[id] {
            Node::Qualified(of, cv) => {
                self.left(*of);
                let inner = match self.node(self.placed(*of)) {
                    (Node::Qualified(_, inner), _) => *inner,
                    _ => 0,
                };
                words(cv & !inner).for_each(|word| self.push(word));
            }
            Node::Suffixed(of, word) => {
                self.left(*of);
                self.push(" ");
                self.push(word);
            }
            Node::Pointer(to) => {
                self.left(*to);
                self.open_declarator(self.placed(*to));
                self.push("*");
            }
            Node::LeftReference(_) | Node::RightReference(_) => {
                let (to, is_left) = self.collapsed(self.placed(id), false);
                self.left_at(to);
                self.open_declarator(to);
                self.push(if is_left { "&" } else { "&&" });
            }
            Node::MemberPointer(class, of) => {
                let of = self.placed(*of);
                self.left_at(of);
                self.open_declarator(of);
                if !self.is_function(of) && !self.is_array(of) {
                    self.push(" ");
                }
                self.print(*class);
                self.push("::*");
            }
            Node::Array(_, of) => self.left(*of),
            Node::Function { result, .. } => {
                if let Some(result) = *result {
                    self.left(result);
                    if !self.out.ends_with(['(', '*', '&']) || !self.has_right(self.placed(result))
                    {
                        self.push(" ");
                    }
                }
            }
            Node::Encoding(name, function) => self.encoding(*name, *function, true),
            other => self.other(other),
        }
    }

    fn right_of(&mut self, id: Id) {
        let nodes = self.nodes;
        match &nodes[id] {
            Node::Qualified(of, _) | Node::Suffixed(of, _) => self.right(*of),
            Node::Pointer(of) | Node::MemberPointer(_, of) => {
                self.close_declarator(self.placed(*of));
                self.right(*of);
            }
            Node::LeftReference(_) | Node::RightReference(_) => {
                let (to, _) = self.collapsed(self.placed(id), false);
                self.close_declarator(to);
                self.right_at(to);
            }
            Node::Array(length, of) => {
                self.push(if self.out.ends_with(']') { "[" } else { " [" });
                if let Some(length) = length {
                    self.print(*length);
                }
                self.push("]");
                self.right(*of);
            }
            Node::Function { result, .. } => {
                self.function_tail(id);
                if let Some(result) = result {
                    self.right(*result);
                }
            }
            _ => {}
        }
    }

    fn function_tail(&mut self, function: Id) {
        let nodes = self.nodes;
        if let Node::Function {
            parameters,
            specifications,
            qualifiers,
            ..
        } = &nodes[function]
        {
            self.push("(");
            self.list(parameters);
            self.push(")");
            for &specification in specifications.iter().rev() {
                self.push(" ");
                self.print(specification);
            }
            self.qualifiers(*qualifiers);
        }
    }

    fn qualifiers(&mut self, qualifiers: Qualifiers) {
        words(qualifiers.cv).for_each(|word| self.push(word));
        self.push(match qualifiers.reference {
            Reference::None => "",
            Reference::Left => " &",
            Reference::Right => " &&",
        });
    }

    /// Prints with the template arguments in `name`.
    fn in_scope_of(&mut self, name: Id, print: impl FnOnce(&mut Self)) {
        let outer = self.context.scope;
        if self.arguments_of(name).is_some() {
            self.scopes.push((name, outer));
            self.context.scope = Some(self.scopes.len() - 1);
        }
        print(self);
        self.context.scope = outer;
    }

    fn encoding(&mut self, name: Id, function: Id, with_result: bool) {
        self.in_scope_of(name, |printer| {
            printer.function(name, function, with_result)
        });
    }

    fn function(&mut self, name: Id, function: Id, with_result: bool) {
        let result = match self.nodes[function] {
            Node::Function { result, .. } if with_result => result,
            _ => None,
        };
        if let Some(result) = result {
            self.left(result);
            if !self.has_right(self.placed(result)) {
                self.push(" ");
            }
        }
        self.print(name);
        self.function_tail(function);
        if let Some(result) = result {
            self.right(result);
        }
    }

    /// The name of a class, as its constructors use it.
    fn base_name(&mut self, class: Id) {
        self.at(self.placed(class), |printer, class| {
            match printer.nodes[class] {
                // As binutils print it.
                Node::Nested(prefix, last) if matches!(printer.nodes[last], Node::Unnamed(_)) => {
                    printer.base_name(prefix);
                }
                Node::Nested(_, last) | Node::Local(_, last) => printer.base_name(last),
                Node::Template(of, _) | Node::Tagged(of, _) | Node::InModule(of, _) => {
                    printer.base_name(of);
                }
                Node::Standard { base, .. } => printer.push(base),
                _ => printer.print(class),
            }
        });
    }

    fn other(&mut self, node: &'t Node<'t>) {
        match node {
            Node::Text(text) | Node::Builtin(text) | Node::Standard { text, .. } => {
                self.push(text);
            }
            Node::Nested(prefix, last) => {
                self.print(*prefix);
                self.push("::");
                self.print(*last);
            }
            Node::Local(function, entity) => {
                match self.nodes[*function] {
                    Node::Encoding(name, function) => self.encoding(name, function, false),
                    _ => self.print(*function),
                }
                self.push("::");
                self.print(*entity);
            }
            Node::Template(of, arguments) => {
                self.print(*of);
                if self.out.ends_with('<') {
                    self.push(" ");
                }
                self.push("<");
                self.list(arguments);
                if self.out.ends_with('>') && self.emptied != self.out.len() {
                    self.push(" ");
                }
                self.push(">");
            }
            Node::Pack(items) => self.list(items),
            Node::Parameter(index) => match self.context.lambda {
                Some(head) => self.lambda_parameter(head, *index),
                None => self.failed = true,
            },
            Node::Expansion(of) => self.expansion(*of),
            Node::Constructor(class) => self.base_name(*class),
            Node::Destructor(class) => {
                self.push("~");
                self.base_name(*class);
            }
            Node::Operator(text) => {
                self.push("operator");
                if text.starts_with(|first: char| first.is_ascii_lowercase()) {
                    self.push(" ");
                }
                self.push(text.trim_end());
            }
            Node::Conversion(to) => {
                self.push("operator ");
                self.print(*to);
            }
            Node::LiteralOperator(name) => {
                self.push("operator\"\" ");
                self.push(name);
            }
            Node::Lambda(head, parameters, index) => self.lambda(*head, parameters, *index),
            Node::Unnamed(index) => self.numbered("{unnamed type#", *index, "}"),
            Node::DefaultArgument(argument, entity) => {
                self.numbered("{default arg#", *argument, "}::");
                self.print(*entity);
            }
            Node::Binding(names) => {
                self.push("[");
                self.list(names);
                self.push("]");
            }
            Node::Module {
                outer,
                is_partition,
                name,
            } => {
                if let Some(outer) = outer {
                    self.print(*outer);
                }
                self.push(match (outer, is_partition) {
                    (_, true) => ":",
                    (Some(_), false) => ".",
                    (None, false) => "",
                });
                self.push(name);
            }
            Node::InModule(of, module) => {
                self.print(*of);
                self.push("@");
                self.print(*module);
            }
            Node::Tagged(of, tag) => {
                self.print(*of);
                self.push("[abi:");
                self.push(tag);
                self.push("]");
            }
            Node::Vector(length, of) => {
                self.print(*of);
                self.push(" __vector(");
                self.print(*length);
                self.push(")");
            }
            Node::Decltype(of) => {
                self.push("decltype (");
                self.print(*of);
                self.push(")");
            }
            Node::Special(text, of) => {
                self.push(text);
                self.print(*of);
            }
            Node::ConstructionVtable(base, derived) => {
                self.push("construction vtable for ");
                self.print(*base);
                self.push("-in-");
                self.print(*derived);
            }
            Node::Clone(of, suffix) => {
                self.print(*of);
                self.push(" [clone ");
                self.push(suffix);
                self.push("]");
            }
            _ => self.expression(node),
        }
    }

    fn numbered(&mut self, before: &str, number: usize, after: &str) {
        self.push(before);
        self.push(&number.to_string());
        self.push(after);
    }
}
