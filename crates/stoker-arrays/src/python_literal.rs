//! Literals of Python, of which the headers of NumPy's files consist.

/// The deepest nesting. A list of fields with shapes has four levels.
const DEPTH_MAX: usize = 16;

/// The number of characters that a message shows.
const SHOWN_CHARS: usize = 24;

/// A literal of Python.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PythonLiteral {
    Text(String),
    Number(u64),
    Flag(bool),
    /// A list or a tuple.
    List(Vec<PythonLiteral>),
    /// A dictionary whose keys are texts, in its order.
    Map(Vec<(String, PythonLiteral)>),
}

impl PythonLiteral {
    /// Parses a literal, with white space around it.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parser = LiteralParser { rest: text };
        let value = parser.value(0)?;
        parser.skip_space();
        if parser.rest.is_empty() { Ok(value) } else { Err(parser.unexpected("the end")) }
    }
}

struct LiteralParser<'a> {
    rest: &'a str,
}

impl LiteralParser<'_> {
    fn value(&mut self, depth: usize) -> Result<PythonLiteral, String> {
        if depth >= DEPTH_MAX {
            return Err(format!("lists in lists have more than {DEPTH_MAX} levels"));
        }
        self.skip_space();
        match self.rest.chars().next() {
            Some('{') => self.map(depth),
            Some('(') => self.tuple(depth),
            Some('[') => Ok(PythonLiteral::List(self.items('[', ']', depth)?.0)),
            Some('\'' | '"') => self.text().map(PythonLiteral::Text),
            Some('0'..='9') => self.number().map(PythonLiteral::Number),
            _ if self.takes("True") => Ok(PythonLiteral::Flag(true)),
            _ if self.takes("False") => Ok(PythonLiteral::Flag(false)),
            _ => Err(self.unexpected("a text, a number, a flag, a tuple, a list or a dict")),
        }
    }

    fn map(&mut self, depth: usize) -> Result<PythonLiteral, String> {
        self.expect("{")?;
        let mut entries = Vec::new();
        loop {
            self.skip_space();
            if self.takes("}") {
                return Ok(PythonLiteral::Map(entries));
            }
            let key = self.text()?;
            self.skip_space();
            self.expect(":")?;
            entries.push((key, self.value(depth + 1)?));
            self.skip_space();
            if !self.takes(",") {
                self.expect("}")?;
                return Ok(PythonLiteral::Map(entries));
            }
        }
    }

    /// A value in parentheses is no tuple, unless a comma follows it.
    fn tuple(&mut self, depth: usize) -> Result<PythonLiteral, String> {
        let (mut items, ends_with_comma) = self.items('(', ')', depth)?;
        match items.pop() {
            Some(only) if items.is_empty() && !ends_with_comma => Ok(only),
            last => {
                items.extend(last);
                Ok(PythonLiteral::List(items))
            }
        }
    }

    /// Returns the items, and whether a comma follows the last one.
    fn items(&mut self, open: char, close: char, depth: usize) -> Result<(Vec<PythonLiteral>, bool), String> {
        self.expect(open.encode_utf8(&mut [0; 4]))?;
        let mut encoded = [0; 4];
        let close: &str = close.encode_utf8(&mut encoded);
        let mut items = Vec::new();
        loop {
            self.skip_space();
            if self.takes(close) {
                return Ok((items, true));
            }
            items.push(self.value(depth + 1)?);
            self.skip_space();
            if !self.takes(",") {
                self.expect(close)?;
                return Ok((items, false));
            }
        }
    }

    /// Python 2 writes an L behind long numbers.
    fn number(&mut self) -> Result<u64, String> {
        let end = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at_checked(end).unwrap_or((self.rest, ""));
        let number = digits.parse().map_err(|_| self.unexpected("a number below 2^64"))?;
        self.rest = rest.strip_prefix('L').unwrap_or(rest);
        Ok(number)
    }

    fn text(&mut self) -> Result<String, String> {
        let mut chars = self.rest.chars();
        let quote = match chars.next() {
            Some(quote @ ('\'' | '"')) => quote,
            _ => return Err(self.unexpected("a text")),
        };
        let mut text = String::new();
        loop {
            match chars.next() {
                Some(c) if c == quote => break,
                Some('\\') => {
                    text.push(escaped(&mut chars).ok_or_else(|| self.unexpected("a text with known escapes"))?)
                }
                Some(c) => text.push(c),
                None => return Err(self.unexpected("a text that ends")),
            }
        }
        self.rest = chars.as_str();
        Ok(text)
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_ascii_start();
    }

    fn takes(&mut self, token: &str) -> bool {
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.takes(token) { Ok(()) } else { Err(self.unexpected(token)) }
    }

    fn unexpected(&self, expected: &str) -> String {
        let found: String = self.rest.chars().take(SHOWN_CHARS).flat_map(char::escape_debug).collect();
        format!("expected {expected}, found \"{found}\"")
    }
}

/// Returns the character that an escape stands for, after its backslash.
fn escaped(chars: &mut std::str::Chars<'_>) -> Option<char> {
    match chars.next()? {
        'n' => Some('\n'),
        'r' => Some('\r'),
        't' => Some('\t'),
        'x' => code(chars, 2),
        'u' => code(chars, 4),
        'U' => code(chars, 8),
        same @ ('\\' | '\'' | '"') => Some(same),
        _ => None,
    }
}

/// Returns the character whose number follows in hexadecimal digits.
fn code(chars: &mut std::str::Chars<'_>, num_digits: usize) -> Option<char> {
    let mut number = 0u32;
    for _ in 0..num_digits {
        number = number.checked_mul(16)? | chars.next()?.to_digit(16)?;
    }
    char::from_u32(number)
}
