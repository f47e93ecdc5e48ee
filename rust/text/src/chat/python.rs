//! Values as Python writes them: str(), repr() and json.dumps().
//!
//! Templates are written for Python's Jinja, where `{{ message }}` of a dict, `{{ x is defined }}` or `{{ none }}` print
//! Python's words. All that is written here is metered.

use std::fmt::Write as _;
use std::sync::OnceLock;

use fancy_regex::Regex;
use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};

use super::meter;

const STEP_COST: usize = 16; // what a piece costs beside its bytes: a tree may have many and short ones
const DEPTH_LIMIT: usize = 200; // of nested values; JSON that comes in has at most 128

type Result<T> = std::result::Result<T, Error>;

/// A string that grows within the budget of the rendering.
#[derive(Default)]
pub struct Text(String);

impl Text {
    pub fn push(&mut self, piece: &str) -> Result<()> {
        meter::charge(piece.len() + STEP_COST)?;
        self.0.push_str(piece);
        Ok(())
    }
    pub fn into_value(self) -> Value {
        Value::from(self.0)
    }
}

/// str(value)
pub fn str_of(value: &Value) -> Result<String> {
    let mut out = Text::default();
    write_str(&mut out, value)?;
    Ok(out.0)
}

pub fn write_str(out: &mut Text, value: &Value) -> Result<()> {
    match value.as_str() {
        Some(text) => out.push(text),
        None if value.is_undefined() => Ok(()),
        None => write_repr(out, value, 0),
    }
}

/// repr(value)
pub fn repr_of(value: &Value) -> Result<String> {
    let mut out = Text::default();
    write_repr(&mut out, value, 0)?;
    Ok(out.0)
}

fn write_repr(out: &mut Text, value: &Value, depth: usize) -> Result<()> {
    check_depth(depth)?;
    match value.kind() {
        ValueKind::Undefined => out.push("Undefined"),
        ValueKind::None => out.push("None"),
        ValueKind::Bool => out.push(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => out.push(&number(value, false)),
        ValueKind::String => write_string_repr(out, value.as_str().unwrap_or_default()),
        ValueKind::Seq | ValueKind::Iterable => {
            out.push("[")?;
            for (i, item) in value.try_iter()?.enumerate() {
                out.push(if i == 0 { "" } else { ", " })?;
                write_repr(out, &item, depth + 1)?;
            }
            out.push("]")
        }
        ValueKind::Map => {
            out.push("{")?;
            for (i, key) in value.try_iter()?.enumerate() {
                out.push(if i == 0 { "" } else { ", " })?;
                write_repr(out, &key, depth + 1)?;
                out.push(": ")?;
                write_repr(out, &value.get_item(&key)?, depth + 1)?;
            }
            out.push("}")
        }
        _ => out.push(&value.to_string()),
    }
}

fn write_string_repr(out: &mut Text, text: &str) -> Result<()> {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut word = String::with_capacity(text.len() + 2);
    word.push(quote);
    for c in text.chars() {
        match c {
            '\\' => word.push_str("\\\\"),
            '\n' => word.push_str("\\n"),
            '\r' => word.push_str("\\r"),
            '\t' => word.push_str("\\t"),
            c if c == quote => word.extend(['\\', c]),
            c if is_printable(c) || meter::is_mark(c) => word.push(c),
            c => {
                let code = c as u32;
                let _ = match code {
                    0..=0xff => write!(word, "\\x{code:02x}"),
                    0x100..=0xffff => write!(word, "\\u{code:04x}"),
                    _ => write!(word, "\\U{code:08x}"),
                };
            }
        }
    }
    word.push(quote);
    out.push(&word)
}

/// str.isprintable() of one character: neither "other" nor a separator, but for the space.
fn is_printable(c: char) -> bool {
    static OTHERS: OnceLock<Option<Regex>> = OnceLock::new();
    if c.is_ascii() {
        return !c.is_ascii_control();
    }
    let others = OTHERS.get_or_init(|| Regex::new(r"[\p{C}\p{Z}]").ok());
    !others.as_ref().is_some_and(|r| r.is_match(c.encode_utf8(&mut [0; 4])).unwrap_or(true))
}

/// Numbers as repr() and, for what JSON has no word for, as json.dumps() writes them.
pub fn number(value: &Value, json: bool) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    let Ok(x) = f64::try_from(value.clone()) else { return value.to_string() };
    if !x.is_finite() {
        let word = if x.is_nan() {
            ["nan", "NaN"]
        } else if x > 0.0 {
            ["inf", "Infinity"]
        } else {
            ["-inf", "-Infinity"]
        };
        return word[usize::from(json)].into();
    }
    // The shortest digits that read back as the same number, like Python's; the exponent from 1e16 and below 1e-4.
    let scientific = format!("{x:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if x == 0.0 || (-4..16).contains(&exponent) {
        let plain = format!("{x}");
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

fn check_depth(depth: usize) -> Result<()> {
    if depth > DEPTH_LIMIT {
        return Err(Error::new(ErrorKind::InvalidOperation, format!("a value is nested more than {DEPTH_LIMIT} deep")));
    }
    Ok(())
}

// ---- JSON ----------------------------------------------------------------------------------------------------------

/// The arguments of json.dumps() that templates use.
pub struct JsonStyle {
    pub ensure_ascii: bool,
    pub indent: Option<String>,
    pub item_separator: String,
    pub key_separator: String,
    pub sort_keys: bool,
}

pub fn json_of(value: &Value, style: &JsonStyle) -> Result<Value> {
    let mut out = Text::default();
    write_json(&mut out, value, style, 0)?;
    Ok(out.into_value())
}

fn write_json(out: &mut Text, value: &Value, style: &JsonStyle, depth: usize) -> Result<()> {
    check_depth(depth)?;
    match value.kind() {
        ValueKind::None => out.push("null"),
        ValueKind::Bool => out.push(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => out.push(&number(value, true)),
        ValueKind::String => write_json_string(out, value.as_str().unwrap_or_default(), style.ensure_ascii),
        ValueKind::Seq | ValueKind::Iterable => {
            out.push("[")?;
            let mut any = false;
            for item in value.try_iter()? {
                item_start(out, style, any, depth)?;
                any = true;
                write_json(out, &item, style, depth + 1)?;
            }
            close(out, style, any, depth, "]")
        }
        ValueKind::Map => {
            let mut keys: Vec<Value> = value.try_iter()?.collect();
            if style.sort_keys {
                keys.sort();
            }
            out.push("{")?;
            for (i, key) in keys.iter().enumerate() {
                item_start(out, style, i > 0, depth)?;
                write_json_string(out, &json_key(key)?, style.ensure_ascii)?;
                out.push(&style.key_separator)?;
                write_json(out, &value.get_item(key)?, style, depth + 1)?;
            }
            close(out, style, !keys.is_empty(), depth, "}")
        }
        kind => {
            Err(Error::new(ErrorKind::InvalidOperation, format!("a value of type {kind} is not JSON serializable")))
        }
    }
}

fn item_start(out: &mut Text, style: &JsonStyle, again: bool, depth: usize) -> Result<()> {
    if again {
        out.push(&style.item_separator)?;
    }
    new_line(out, style, depth + 1)
}

fn close(out: &mut Text, style: &JsonStyle, any: bool, depth: usize, bracket: &str) -> Result<()> {
    if any {
        new_line(out, style, depth)?;
    }
    out.push(bracket)
}

fn new_line(out: &mut Text, style: &JsonStyle, depth: usize) -> Result<()> {
    if let Some(indent) = &style.indent {
        out.push("\n")?;
        for _ in 0..depth {
            out.push(indent)?;
        }
    }
    Ok(())
}

fn json_key(key: &Value) -> Result<String> {
    Ok(match key.kind() {
        ValueKind::String => key.as_str().unwrap_or_default().into(),
        ValueKind::None => "null".into(),
        ValueKind::Bool => if key.is_true() { "true" } else { "false" }.into(),
        ValueKind::Number => number(key, true),
        kind => return Err(Error::new(ErrorKind::InvalidOperation, format!("a key of type {kind} is no JSON key"))),
    })
}

fn write_json_string(out: &mut Text, text: &str, ensure_ascii: bool) -> Result<()> {
    let mut word = String::with_capacity(text.len() + 2);
    word.push('"');
    for c in text.chars() {
        match c {
            '"' => word.push_str("\\\""),
            '\\' => word.push_str("\\\\"),
            '\n' => word.push_str("\\n"),
            '\r' => word.push_str("\\r"),
            '\t' => word.push_str("\\t"),
            '\u{8}' => word.push_str("\\b"),
            '\u{c}' => word.push_str("\\f"),
            c if (c as u32) < 0x20 || (ensure_ascii && c > '~' && !meter::is_mark(c)) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(word, "\\u{unit:04x}");
                }
            }
            c => word.push(c),
        }
    }
    word.push('"');
    out.push(&word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_like_python() {
        let shown = |x: f64| number(&Value::from(x), false);
        assert_eq!(shown(1.0), "1.0");
        assert_eq!(shown(0.1), "0.1");
        assert_eq!(shown(1e15), "1000000000000000.0");
        assert_eq!(shown(1e16), "1e+16");
        assert_eq!(shown(1.5e-5), "1.5e-05");
        assert_eq!(shown(0.0001), "0.0001");
        assert_eq!(shown(-0.0), "-0.0");
        assert_eq!(shown(1e300), "1e+300");
        assert_eq!(number(&Value::from(f64::NAN), true), "NaN");
        assert_eq!(number(&Value::from(-7), false), "-7");
    }

    #[test]
    fn strings_like_python() {
        meter::open(None);
        let shown = |s: &str| repr_of(&Value::from(s)).unwrap();
        assert_eq!(shown("it's"), "\"it's\"");
        assert_eq!(shown("'\""), "'\\'\"'");
        assert_eq!(
            shown("a\n\u{7f}\u{e9}\u{301}\u{200b}\u{a0}\u{1f600}"),
            "'a\\n\\x7f\u{e9}\u{301}\\u200b\\xa0\u{1f600}'"
        );
    }
}
