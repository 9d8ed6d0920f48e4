//! Reads encodings and names.

use super::{
    CONST, Id, MAX_DEPTH, Node, Qualifiers, RESTRICT, Reference, Tree, VOLATILE, expression,
};

/// Reads a mangled name as a whole.
pub(super) fn parse(name: &str) -> Option<Tree<'_>> {
    let body = name.trim_start_matches('_');
    if !(1..=3).contains(&(name.len() - body.len())) {
        return None;
    }
    let mut parser = Parser {
        text: body.strip_prefix('Z')?,
        at: 0,
        depth: 0,
        nodes: Vec::with_capacity(body.len() / 2),
        substitutions: Vec::new(),
        in_conversion: false,
    };
    let mut root = parser.encoding()?;
    while let Some(suffix) = parser.clone_suffix() {
        root = parser.add(Node::Clone(root, suffix));
    }
    (parser.at == parser.text.len()).then_some(Tree {
        nodes: parser.nodes,
        root,
    })
}

pub(super) struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    nodes: Vec<Node<'a>>,
    substitutions: Vec<Id>,
    in_conversion: bool,
}

impl<'a> Parser<'a> {
    pub(super) fn add(&mut self, node: Node<'a>) -> Id {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    pub(super) fn node(&self, id: Id) -> &Node<'a> {
        &self.nodes[id]
    }

    /// Runs `read` one level deeper.
    pub(super) fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        if self.depth == MAX_DEPTH {
            return None;
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    pub(super) fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// The next byte, or 0 at the end.
    pub(super) fn peek(&self) -> u8 {
        self.peek_at(0)
    }

    pub(super) fn peek_at(&self, offset: usize) -> u8 {
        let bytes = self.text.as_bytes();
        bytes.get(self.at + offset).copied().unwrap_or(0)
    }

    pub(super) fn eat(&mut self, prefix: &str) -> bool {
        let found = self.rest().starts_with(prefix);
        if found {
            self.at += prefix.len();
        }
        found
    }

    /// Takes `prefix` if `is_next` accepts what follows.
    pub(super) fn eat_before(&mut self, prefix: &str, is_next: impl Fn(&str) -> bool) -> bool {
        let rest = self.rest().strip_prefix(prefix);
        rest.is_some_and(is_next) && self.eat(prefix)
    }

    pub(super) fn expect(&mut self, prefix: &str) -> Option<()> {
        self.eat(prefix).then_some(())
    }

    /// Skips bytes that [`Self::peek`] has shown.
    pub(super) fn advance(&mut self, len: usize) {
        self.at += len;
    }

    pub(super) fn in_conversion(&self) -> bool {
        self.in_conversion
    }

    pub(super) fn take(&mut self, len: usize) -> Option<&'a str> {
        let taken = self.rest().get(..len)?;
        self.at += len;
        Some(taken)
    }

    /// Takes the leading bytes that satisfy `is_part`.
    pub(super) fn take_while(&mut self, is_part: impl Fn(u8) -> bool) -> &'a str {
        let rest = self.rest();
        let len = rest.bytes().take_while(|&byte| is_part(byte)).count();
        self.take(len).unwrap_or_default()
    }

    pub(super) fn number(&mut self) -> Option<usize> {
        self.take_while(|byte| byte.is_ascii_digit()).parse().ok()
    }

    /// `[number] _`: 0 without a number, otherwise one more than it.
    pub(super) fn index(&mut self) -> Option<usize> {
        if self.eat("_") {
            return Some(0);
        }
        let number = self.number()?;
        self.expect("_")?;
        number.checked_add(1)
    }

    pub(super) fn substitutable(&mut self, id: Id) {
        self.substitutions.push(id);
    }

    /// Reads items up to an `E`.
    pub(super) fn list(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Option<Id>,
    ) -> Option<Vec<Id>> {
        let mut items = Vec::new();
        while !self.eat("E") {
            items.push(item(self)?);
        }
        Some(items)
    }

    pub(super) fn encoding(&mut self) -> Option<Id> {
        self.nested(|parser| {
            if matches!(parser.peek(), b'T' | b'G') {
                return parser.special();
            }
            parser.function_or_data()
        })
    }

    fn function_or_data(&mut self) -> Option<Id> {
        let mut qualifiers = Qualifiers::NONE;
        let name = self.name(Some(&mut qualifiers))?;
        if matches!(self.peek(), 0 | b'E' | b'.') {
            return Some(name);
        }
        let result = if self.has_result(name) {
            Some(self.type_()?)
        } else {
            None
        };
        let parameters = self.parameters()?;
        let function = self.add(Node::Function {
            result,
            parameters,
            specifications: Vec::new(),
            qualifiers,
        });
        Some(self.add(Node::Encoding(name, function)))
    }

    /// Templates have their return type in the encoding, except constructors, destructors and
    /// conversions.
    fn has_result(&self, name: Id) -> bool {
        match self.nodes[name] {
            Node::Template(of, _) => !self.is_structor_or_conversion(of),
            Node::Local(_, entity) | Node::DefaultArgument(_, entity) => self.has_result(entity),
            _ => false,
        }
    }

    fn is_structor_or_conversion(&self, name: Id) -> bool {
        match self.nodes[name] {
            Node::Nested(_, last) | Node::Tagged(last, _) => self.is_structor_or_conversion(last),
            Node::Constructor(_) | Node::Destructor(_) | Node::Conversion(_) => true,
            _ => false,
        }
    }

    /// Parameter types up to the end of the function. `v` alone means none.
    pub(super) fn parameters(&mut self) -> Option<Vec<Id>> {
        let mut parameters = Vec::new();
        while !matches!(self.peek(), 0 | b'E' | b'.' | b'Q')
            && !matches!((self.peek(), self.peek_at(1)), (b'R' | b'O', b'E'))
        {
            parameters.push(self.type_()?);
        }
        if self.eat("Q") {
            expression::expression(self)?;
        }
        if let [only] = parameters[..]
            && matches!(self.nodes[only], Node::Builtin("void"))
        {
            parameters.clear();
        }
        Some(parameters)
    }

    /// `<name>`. The qualifiers of a member function go to `qualifiers`.
    pub(super) fn name(&mut self, qualifiers: Option<&mut Qualifiers>) -> Option<Id> {
        self.nested(|parser| {
            let name = match parser.peek() {
                b'N' => return parser.nested_name(qualifiers),
                b'Z' => return parser.local_name(qualifiers),
                b'S' if parser.peek_at(1) != b't' => {
                    let (name, is_new) = parser.substituted(false, None)?;
                    if parser.peek() != b'I' {
                        return Some(name);
                    }
                    if is_new {
                        parser.substitutable(name);
                    }
                    name
                }
                _ => {
                    let std = parser.eat("St").then(|| parser.add(Node::Text("std")));
                    let name = parser.unqualified(std)?;
                    let name = match std {
                        Some(std) => parser.add(Node::Nested(std, name)),
                        None => name,
                    };
                    if parser.peek() != b'I' {
                        return Some(name);
                    }
                    parser.substitutable(name);
                    name
                }
            };
            let arguments = parser.template_arguments()?;
            Some(parser.add(Node::Template(name, arguments)))
        })
    }

    fn nested_name(&mut self, qualifiers: Option<&mut Qualifiers>) -> Option<Id> {
        self.expect("N")?;
        let cv = self.cv_qualifiers();
        let reference = match self.peek() {
            b'R' => Reference::Left,
            b'O' => Reference::Right,
            _ => Reference::None,
        };
        if reference != Reference::None {
            self.at += 1;
        }
        // C++23 member functions with an explicit object.
        self.eat("H");
        if let Some(qualifiers) = qualifiers {
            (qualifiers.cv, qualifiers.reference) = (cv, reference);
        }
        let mut name = None;
        let mut is_added = false;
        while !self.eat("E") {
            is_added = true;
            name = Some(match (self.peek(), self.peek_at(1)) {
                (b'S', b't') => {
                    self.at += 2;
                    is_added = false;
                    self.add(Node::Text("std"))
                }
                (b'S', _) => {
                    let (found, is_new) = self.substituted(true, name)?;
                    is_added = is_new;
                    match name {
                        Some(prefix) if is_new => self.add(Node::Nested(prefix, found)),
                        _ => found,
                    }
                }
                (b'T', _) => self.template_parameter()?,
                (b'I', _) => {
                    let arguments = self.template_arguments()?;
                    self.add(Node::Template(name?, arguments))
                }
                (b'D', b't' | b'T') => self.decltype()?,
                // Marks the initializer of a data member.
                (b'M', _) => {
                    self.at += 1;
                    continue;
                }
                _ => {
                    let last = self.unqualified(name)?;
                    match name {
                        Some(prefix) => self.add(Node::Nested(prefix, last)),
                        None => last,
                    }
                }
            });
            if is_added {
                self.substitutable(name?);
            }
        }
        // A whole name is substitutable as a type only.
        if is_added {
            self.substitutions.pop();
        }
        name
    }

    fn local_name(&mut self, qualifiers: Option<&mut Qualifiers>) -> Option<Id> {
        self.expect("Z")?;
        let function = self.encoding()?;
        self.expect("E")?;
        let entity = if self.eat("s") {
            self.add(Node::Text("string literal"))
        } else if self.eat("d") {
            let argument = self.index()?;
            let entity = self.name(qualifiers)?;
            self.add(Node::DefaultArgument(argument + 1, entity))
        } else {
            self.name(qualifiers)?
        };
        self.discriminator();
        Some(self.add(Node::Local(function, entity)))
    }

    fn discriminator(&mut self) {
        let start = self.at;
        if !self.eat("_") {
            return;
        }
        let is_long = self.eat("_");
        if self.number().is_none() || is_long && !self.eat("_") {
            self.at = start;
        }
    }

    /// `<unqualified-name>`. Constructors take their name from `class`.
    pub(super) fn unqualified(&mut self, class: Option<Id>) -> Option<Id> {
        let module = match self.peek() {
            b'W' => Some(self.module(None)?),
            _ => None,
        };
        self.unqualified_in(module, class)
    }

    /// `<unqualified-name>` after its module.
    pub(super) fn unqualified_in(&mut self, module: Option<Id>, class: Option<Id>) -> Option<Id> {
        // Marks internal linkage.
        self.eat("L");
        let mut name = match (self.peek(), self.peek_at(1)) {
            (b'0'..=b'9', _) => {
                let name = self.source_name()?;
                self.add(Node::Text(name))
            }
            (b'C', b'1'..=b'5' | b'I') => {
                self.at += 1;
                let is_inherited = self.eat("I");
                self.at += 1;
                // An inherited constructor has the name of the base class.
                let class = if is_inherited {
                    Some(self.type_()?)
                } else {
                    class
                };
                self.add(Node::Constructor(class?))
            }
            (b'D', b'0'..=b'5') => {
                self.at += 2;
                self.add(Node::Destructor(class?))
            }
            (b'D', b'C') => {
                self.at += 2;
                let names = self.list(|parser| {
                    let name = parser.source_name()?;
                    Some(parser.add(Node::Text(name)))
                })?;
                self.add(Node::Binding(names))
            }
            (b'U', b'l') => {
                self.at += 2;
                self.lambda()?
            }
            (b'U', b't') => {
                self.at += 2;
                let index = self.index()?;
                self.add(Node::Unnamed(index + 1))
            }
            (b'a'..=b'z', _) => self.operator()?,
            _ => return None,
        };
        while self.eat("B") {
            let tag = self.source_name()?;
            name = self.add(Node::Tagged(name, tag));
        }
        if let Some(module) = module {
            name = self.add(Node::InModule(name, module));
        }
        Some(name)
    }

    pub(super) fn source_name(&mut self) -> Option<&'a str> {
        let len = self.number()?;
        let name = self.take(len).filter(|name| !name.is_empty())?;
        let anonymous = name
            .strip_prefix("_GLOBAL_")
            .and_then(|rest| rest.strip_prefix(['_', '.', '$']))
            .is_some_and(|rest| rest.starts_with('N'));
        Some(if anonymous {
            "(anonymous namespace)"
        } else {
            name
        })
    }

    fn operator(&mut self) -> Option<Id> {
        if self.eat("cv") {
            let outer = std::mem::replace(&mut self.in_conversion, true);
            let to = self.type_();
            self.in_conversion = outer;
            let to = to?;
            return Some(self.add(Node::Conversion(to)));
        }
        if self.eat("li") {
            let name = self.source_name()?;
            return Some(self.add(Node::LiteralOperator(name)));
        }
        let (text, _) = expression::operator(self.take(2)?)?;
        Some(self.add(Node::Operator(text)))
    }

    pub(super) fn template_arguments(&mut self) -> Option<Vec<Id>> {
        self.expect("I")?;
        let in_conversion = std::mem::replace(&mut self.in_conversion, false);
        let arguments = self.list(|parser| {
            parser.template_head()?;
            let argument = parser.template_argument()?;
            if parser.eat("Q") {
                expression::expression(parser)?;
            }
            Some(argument)
        });
        self.in_conversion = in_conversion;
        arguments
    }

    pub(super) fn template_argument(&mut self) -> Option<Id> {
        self.nested(|parser| match parser.peek() {
            b'L' => expression::literal(parser),
            b'X' => {
                parser.at += 1;
                let value = expression::expression(parser)?;
                parser.expect("E")?;
                Some(value)
            }
            // Old compilers wrote packs with an I.
            b'J' | b'I' => {
                parser.at += 1;
                let items = parser.list(Self::template_argument)?;
                Some(parser.add(Node::Pack(items)))
            }
            _ => parser.type_(),
        })
    }

    pub(super) fn template_parameter(&mut self) -> Option<Id> {
        self.expect("T")?;
        if self.eat("L") {
            self.index()?;
        }
        let index = self.index()?;
        Some(self.add(Node::Parameter(index)))
    }

    pub(super) fn cv_qualifiers(&mut self) -> u8 {
        let mut cv = 0;
        loop {
            cv |= match self.peek() {
                b'r' => RESTRICT,
                b'V' => VOLATILE,
                b'K' => CONST,
                _ => return cv,
            };
            self.at += 1;
        }
    }

    /// `[seq-id] _`, digits to base 36.
    pub(super) fn index_of_substitution(&mut self) -> Option<usize> {
        let digits = self.take_while(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase());
        self.expect("_")?;
        if digits.is_empty() {
            return Some(0);
        }
        usize::from_str_radix(digits, 36).ok()?.checked_add(1)
    }

    /// `<substitution>`. As the prefix of a constructor, a standard class has its full name.
    pub(super) fn substitution(&mut self, is_prefix: bool) -> Option<Id> {
        self.expect("S")?;
        let code = self.peek();
        if code == b'_' || code.is_ascii_digit() || code.is_ascii_uppercase() {
            let index = self.index_of_substitution()?;
            return self.substitutions.get(index).copied();
        }
        self.at += 1;
        let (short, full, base) = match code {
            b'a' => ("std::allocator", "std::allocator", "allocator"),
            b'b' => ("std::basic_string", "std::basic_string", "basic_string"),
            b's' => (
                "std::string",
                "std::basic_string<char, std::char_traits<char>, std::allocator<char> >",
                "basic_string",
            ),
            b'i' => (
                "std::istream",
                "std::basic_istream<char, std::char_traits<char> >",
                "basic_istream",
            ),
            b'o' => (
                "std::ostream",
                "std::basic_ostream<char, std::char_traits<char> >",
                "basic_ostream",
            ),
            b'd' => (
                "std::iostream",
                "std::basic_iostream<char, std::char_traits<char> >",
                "basic_iostream",
            ),
            _ => return None,
        };
        let is_full = is_prefix && matches!(self.peek(), b'C' | b'D');
        let mut name = self.add(Node::Standard {
            text: if is_full { full } else { short },
            base,
        });
        if self.peek() == b'B' {
            while self.eat("B") {
                let tag = self.source_name()?;
                name = self.add(Node::Tagged(name, tag));
            }
            self.substitutable(name);
        }
        Some(name)
    }

    /// One suffix of a function's copy: `.constprop.0`.
    fn clone_suffix(&mut self) -> Option<&'a str> {
        let suffix = self.rest();
        let is_word = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
        if self.peek() != b'.' || !(is_word(self.peek_at(1)) || self.peek_at(1).is_ascii_digit()) {
            return None;
        }
        self.at += 1;
        self.take_while(is_word);
        if suffix.as_bytes()[1].is_ascii_digit() {
            self.number();
        }
        while self.peek() == b'.' && self.peek_at(1).is_ascii_digit() {
            self.at += 1;
            self.take_while(|byte| byte.is_ascii_digit());
        }
        let len = suffix.len() - self.rest().len();
        suffix.get(..len)
    }
}
