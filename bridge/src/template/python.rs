//! Values written as Python writes them: str(), repr() and json.dumps().

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};

const DEEPEST: usize = 200;

fn too_deep() -> Error {
    Error::new(ErrorKind::InvalidOperation, "value is nested too deeply")
}

/// repr(float): the shortest digits that read back, an exponent outside 1e-4 to 1e16.
pub fn float(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_string();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_string();
    }
    let text = format!("{value:?}");
    match text.split_once('e') {
        Some((digits, exponent)) => {
            let (sign, size) = match exponent.strip_prefix('-') {
                Some(size) => ('-', size),
                None => ('+', exponent),
            };
            let digits = digits.strip_suffix(".0").unwrap_or(digits);
            format!("{digits}e{sign}{size:0>2}")
        }
        None => text,
    }
}

/// str.isprintable for one character, without the tables for unassigned code points.
fn printable(c: char) -> bool {
    match c {
        ' ' => true,
        '\u{AD}' | '\u{600}'..='\u{605}' | '\u{61C}' | '\u{6DD}' | '\u{70F}' | '\u{180E}' => false,
        '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{FEFF}' => false,
        '\u{FFF0}'..='\u{FFFB}' | '\u{FFFE}' | '\u{FFFF}' => false,
        '\u{E000}'..='\u{F8FF}' | '\u{E0000}'..='\u{E0FFF}' | '\u{F0000}'.. => false,
        c => !c.is_control() && !c.is_whitespace(),
    }
}

pub fn quoted(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::with_capacity(text.len() + 2);
    out.push(quote);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if printable(c) => out.push(c),
            c => match c as u32 {
                code @ 0..=0xFF => out.push_str(&format!("\\x{code:02x}")),
                code @ 0x100..=0xFFFF => out.push_str(&format!("\\u{code:04x}")),
                code => out.push_str(&format!("\\U{code:08x}")),
            },
        }
    }
    out.push(quote);
    out
}

/// str(value).
pub fn text(value: &Value) -> Result<String, Error> {
    match value.as_str() {
        Some(text) => Ok(text.to_string()),
        None => {
            let mut out = String::new();
            repr(value, &mut out, 0)?;
            Ok(out)
        }
    }
}

fn repr(value: &Value, out: &mut String, depth: usize) -> Result<(), Error> {
    if depth > DEEPEST {
        return Err(too_deep());
    }
    match value.kind() {
        ValueKind::String => out.push_str(&quoted(value.as_str().unwrap_or_default())),
        ValueKind::Undefined if depth > 0 => out.push_str("Undefined"),
        ValueKind::Number if !value.is_integer() => out.push_str(&float(as_float(value))),
        ValueKind::Seq | ValueKind::Iterable => {
            let tuple = value.is_tuple();
            out.push(if tuple { '(' } else { '[' });
            let mut count = 0;
            for item in value.try_iter()? {
                if count > 0 {
                    out.push_str(", ");
                }
                repr(&item, out, depth + 1)?;
                count += 1;
            }
            if tuple && count == 1 {
                out.push(',');
            }
            out.push(if tuple { ')' } else { ']' });
        }
        ValueKind::Map => {
            out.push('{');
            for (at, key) in value.try_iter()?.enumerate() {
                if at > 0 {
                    out.push_str(", ");
                }
                repr(&key, out, depth + 1)?;
                out.push_str(": ");
                repr(&value.get_item(&key)?, out, depth + 1)?;
            }
            out.push('}');
        }
        _ => out.push_str(&value.to_string()),
    }
    Ok(())
}

fn as_float(value: &Value) -> f64 {
    f64::try_from(value.clone()).unwrap_or(f64::NAN)
}

/// json.dumps: its separators, indent and order of keys.
pub struct Json {
    pub ascii: bool,
    pub indent: Option<String>,
    pub item_separator: String,
    pub key_separator: String,
    pub sort_keys: bool,
}

impl Json {
    pub fn dump(&self, value: &Value) -> Result<String, Error> {
        let mut out = String::new();
        self.write(value, &mut out, 0)?;
        Ok(out)
    }

    fn line(&self, out: &mut String, depth: usize) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(indent.as_str(), depth));
        }
    }

    fn string(&self, text: &str, out: &mut String) {
        out.push('"');
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{C}' => out.push_str("\\f"),
                c if (c as u32) < 0x20 => out.push_str(&format!("\\u{:04x}", c as u32)),
                c if self.ascii && (c as u32) > 0x7E => {
                    let mut units = [0; 2];
                    for unit in c.encode_utf16(&mut units) {
                        out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                c => out.push(c),
            }
        }
        out.push('"');
    }

    fn number(value: &Value) -> String {
        if value.is_integer() {
            return value.to_string();
        }
        match as_float(value) {
            f if f.is_nan() => "NaN".to_string(),
            f if f.is_infinite() => if f > 0.0 { "Infinity" } else { "-Infinity" }.to_string(),
            f => float(f),
        }
    }

    fn plain(value: &Value) -> Option<String> {
        match value.kind() {
            ValueKind::None => Some("null".to_string()),
            ValueKind::Bool => Some(if value.is_true() { "true" } else { "false" }.to_string()),
            ValueKind::Number => Some(Json::number(value)),
            _ => None,
        }
    }

    fn write(&self, value: &Value, out: &mut String, depth: usize) -> Result<(), Error> {
        if depth > DEEPEST {
            return Err(too_deep());
        }
        if let Some(plain) = Json::plain(value) {
            out.push_str(&plain);
            return Ok(());
        }
        match value.kind() {
            ValueKind::String => self.string(value.as_str().unwrap_or_default(), out),
            ValueKind::Seq | ValueKind::Iterable => {
                let mut any = false;
                out.push('[');
                for item in value.try_iter()? {
                    if any {
                        out.push_str(&self.item_separator);
                    }
                    any = true;
                    self.line(out, depth + 1);
                    self.write(&item, out, depth + 1)?;
                }
                if any {
                    self.line(out, depth);
                }
                out.push(']');
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sort_keys {
                    keys.sort();
                }
                out.push('{');
                for (at, key) in keys.iter().enumerate() {
                    if at > 0 {
                        out.push_str(&self.item_separator);
                    }
                    self.line(out, depth + 1);
                    match (key.as_str(), Json::plain(key)) {
                        (Some(text), _) => self.string(text, out),
                        (None, Some(plain)) => self.string(&plain, out),
                        (None, None) => {
                            return Err(Error::new(
                                ErrorKind::InvalidOperation,
                                "keys must be str, int, float, bool or None",
                            ))
                        }
                    }
                    out.push_str(&self.key_separator);
                    self.write(&value.get_item(key)?, out, depth + 1)?;
                }
                if !keys.is_empty() {
                    self.line(out, depth);
                }
                out.push('}');
            }
            kind => {
                let name =
                    if kind == ValueKind::Undefined { "Undefined".to_string() } else { kind.to_string() };
                return Err(Error::new(
                    ErrorKind::InvalidOperation,
                    format!("Object of type {name} is not JSON serializable"),
                ));
            }
        }
        Ok(())
    }
}
