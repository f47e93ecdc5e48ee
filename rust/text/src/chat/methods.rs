//! The methods of Python's str, dict and list that templates call. Positions count characters, as Python's do.

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{format_filter, Error, ErrorKind, FormatStyle, State};

use super::filters::{check_format, invalid, titled};
use super::meter;
use super::python;

type Result<T> = std::result::Result<T, Error>;

macro_rules! methods {
    ($($name:literal),* $(,)?) => { &[$(($name, concat!(".", $name))),*] };
}

/// Each name, and the filter that calls it.
pub const METHODS: &[(&str, &str)] = methods![
    "capitalize",
    "casefold",
    "center",
    "copy",
    "count",
    "endswith",
    "find",
    "format",
    "get",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "islower",
    "isnumeric",
    "isspace",
    "isupper",
    "items",
    "join",
    "keys",
    "ljust",
    "lower",
    "lstrip",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "upper",
    "values",
    "zfill",
];

/// `args[0].name(args[1..])`
pub fn call(name: &'static str, state: &State, args: &[Value]) -> Result<Value> {
    let Some((value, rest)) = args.split_first() else { return Err(invalid("a method without an object")) };
    let found = match value.kind() {
        ValueKind::String => string_method(name, value.as_str().unwrap_or_default(), &Args::new(rest)?)?,
        ValueKind::Map => dict_method(name, value, &Args::new(rest)?)?,
        ValueKind::Seq | ValueKind::Iterable => list_method(name, value, &Args::new(rest)?)?,
        _ => None,
    };
    match found {
        Some(result) => Ok(result),
        None => value.call_method(state, name, rest),
    }
}

/// Arguments by position or name.
struct Args {
    positional: Vec<Value>,
    named: Option<Kwargs>,
}

impl Args {
    fn new(values: &[Value]) -> Result<Self> {
        match values.split_last() {
            Some((last, front)) if last.is_kwargs() => {
                Ok(Args { positional: front.to_vec(), named: Some(Kwargs::try_from(last.clone())?) })
            }
            _ => Ok(Args { positional: values.to_vec(), named: None }),
        }
    }
    fn get(&self, index: usize, name: &str) -> Result<Option<Value>> {
        if let Some(value) = self.positional.get(index) {
            return Ok(Some(value.clone()));
        }
        self.named.as_ref().map_or(Ok(None), |n| n.get::<Option<Value>>(name))
    }
    fn text(&self, index: usize, name: &str) -> Result<String> {
        let value = self.get(index, name)?.unwrap_or_default();
        value.as_str().map(str::to_owned).ok_or_else(|| invalid(&format!("argument {name} is no string")))
    }
    fn optional_text(&self, index: usize, name: &str) -> Result<Option<String>> {
        match self.get(index, name)? {
            Some(v) if !v.is_none() => Ok(Some(self.text(index, name)?)),
            _ => Ok(None),
        }
    }
    fn integer(&self, index: usize, name: &str) -> Result<Option<i64>> {
        match self.get(index, name)? {
            Some(v) if !v.is_none() => Ok(Some(i64::try_from(v)?)),
            _ => Ok(None),
        }
    }
}

pub fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

pub fn strip<'t>(text: &'t str, chars: Option<&str>, start: bool, end: bool) -> &'t str {
    let drop = |c: char| chars.map_or_else(|| is_space(c), |set| set.contains(c));
    let text = if start { text.trim_start_matches(drop) } else { text };
    if end {
        text.trim_end_matches(drop)
    } else {
        text
    }
}

fn made(text: String) -> Result<Option<Value>> {
    meter::charge(text.len())?;
    Ok(Some(Value::from(text)))
}

fn list(items: impl Iterator<Item = String>) -> Result<Option<Value>> {
    let mut out: Vec<Value> = Vec::new();
    for item in items {
        meter::charge(item.len() + 32)?;
        out.push(Value::from(item));
    }
    Ok(Some(Value::from(out)))
}

fn string_method(name: &str, s: &str, args: &Args) -> Result<Option<Value>> {
    let all = |test: fn(char) -> bool| Ok(Some(Value::from(!s.is_empty() && s.chars().all(test))));
    match name {
        "upper" => made(s.to_uppercase()),
        "lower" => made(s.to_lowercase()),
        "casefold" => made(s.to_lowercase().replace('ß', "ss")),
        "capitalize" => made(capitalized(s)),
        "title" => made(titled(s, |c| c.is_alphabetic())),
        "swapcase" => made(s.chars().flat_map(swapped).collect()),
        "islower" => Ok(Some(Value::from(s.chars().any(char::is_lowercase) && !s.chars().any(char::is_uppercase)))),
        "isupper" => Ok(Some(Value::from(s.chars().any(char::is_uppercase) && !s.chars().any(char::is_lowercase)))),
        "isspace" => all(is_space),
        "isdigit" | "isdecimal" | "isnumeric" => all(char::is_numeric),
        "isalpha" => all(char::is_alphabetic),
        "isalnum" => all(char::is_alphanumeric),
        "isascii" => Ok(Some(Value::from(s.is_ascii()))),
        "strip" | "lstrip" | "rstrip" => {
            let chars = args.optional_text(0, "chars")?;
            made(strip(s, chars.as_deref(), name != "rstrip", name != "lstrip").to_owned())
        }
        "removeprefix" => made(s.strip_prefix(&args.text(0, "prefix")?[..]).unwrap_or(s).to_owned()),
        "removesuffix" => made(s.strip_suffix(&args.text(0, "suffix")?[..]).unwrap_or(s).to_owned()),
        "startswith" | "endswith" => affix(name, s, &args.get(0, "prefix")?.unwrap_or_default()),
        "replace" => replaced(s, &args.text(0, "old")?, &args.text(1, "new")?, args.integer(2, "count")?).map(Some),
        "split" | "rsplit" => split(name, s, args.optional_text(0, "sep")?, args.integer(1, "maxsplit")?),
        "splitlines" => {
            let keep = args.get(0, "keepends")?.is_some_and(|v| v.is_true());
            list(lines(s, keep).into_iter().map(str::to_owned))
        }
        "partition" | "rpartition" => partition(name, s, &args.text(0, "sep")?),
        "find" | "rfind" | "index" | "rindex" => find(name, s, &args.text(0, "sub")?),
        "count" => {
            let what = args.text(0, "sub")?;
            let count = if what.is_empty() { s.chars().count() + 1 } else { s.matches(&what[..]).count() };
            Ok(Some(Value::from(count)))
        }
        "join" => {
            let mut out = python::Text::default();
            for (i, item) in args.get(0, "iterable")?.unwrap_or_default().try_iter()?.enumerate() {
                out.push(if i == 0 { "" } else { s })?;
                out.push(item.as_str().ok_or_else(|| invalid("join: an item is no string"))?)?;
            }
            Ok(Some(out.into_value()))
        }
        "center" | "ljust" | "rjust" | "zfill" => padded(name, s, args),
        "format" => {
            check_format(s)?;
            let mut values = args.positional.clone();
            values.extend(args.named.clone().map(Value::from));
            made(format_filter(FormatStyle::StrFormat, s, &values)?)
        }
        _ => Ok(None),
    }
}

pub fn capitalized(s: &str) -> String {
    let mut chars = s.chars();
    chars.next().map_or_else(String::new, |c| c.to_uppercase().chain(chars.flat_map(char::to_lowercase)).collect())
}

fn swapped(c: char) -> Vec<char> {
    if c.is_lowercase() {
        c.to_uppercase().collect()
    } else {
        c.to_lowercase().collect()
    }
}

fn affix(name: &str, s: &str, wanted: &Value) -> Result<Option<Value>> {
    let test = |w: &str| if name == "startswith" { s.starts_with(w) } else { s.ends_with(w) };
    let holds = match wanted.as_str() {
        Some(w) => test(w),
        None => wanted.try_iter()?.any(|w| w.as_str().is_some_and(test)),
    };
    Ok(Some(Value::from(holds)))
}

/// Pays before it makes the text: `replace` may multiply it.
pub fn replaced(s: &str, old: &str, new: &str, count: Option<i64>) -> Result<Value> {
    let most = count.filter(|c| *c >= 0).map_or(usize::MAX, |c| c as usize);
    let times = s.matches(old).count().min(most);
    meter::charge((s.len() + times.saturating_mul(new.len())).saturating_sub(times * old.len()))?;
    Ok(Value::from(s.replacen(old, new, most)))
}

fn split(name: &str, s: &str, separator: Option<String>, most: Option<i64>) -> Result<Option<Value>> {
    let most = most.filter(|m| *m >= 0).map(|m| m as usize);
    let from_right = name == "rsplit";
    if let Some(separator) = separator {
        if separator.is_empty() {
            return Err(invalid("split: empty separator"));
        }
        let n = most.map_or(usize::MAX, |m| m.saturating_add(1));
        if !from_right {
            return list(s.splitn(n, &separator[..]).map(str::to_owned));
        }
        let parts: Vec<&str> = s.rsplitn(n, &separator[..]).collect();
        return list(parts.into_iter().rev().map(str::to_owned));
    }
    let most = most.unwrap_or(usize::MAX);
    let mut parts = Vec::new();
    let mut rest = strip(s, None, !from_right, from_right);
    while !rest.is_empty() {
        let cut = if from_right { rest.rfind(is_space) } else { rest.find(is_space) };
        match cut {
            Some(at) if parts.len() < most => {
                let width = rest[at..].chars().next().map_or(1, char::len_utf8);
                let (word, left) =
                    if from_right { (&rest[at + width..], &rest[..at]) } else { (&rest[..at], &rest[at + width..]) };
                parts.push(word.to_owned());
                rest = strip(left, None, !from_right, from_right);
            }
            _ => {
                parts.push(rest.to_owned());
                break;
            }
        }
    }
    if from_right {
        parts.reverse();
    }
    list(parts.into_iter())
}

pub fn lines(s: &str, keep_ends: bool) -> Vec<&str> {
    let ends = |c: char| {
        matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}')
    };
    let mut out = Vec::new();
    let mut rest = s;
    while let Some(at) = rest.find(ends) {
        let width =
            if rest[at..].starts_with("\r\n") { 2 } else { rest[at..].chars().next().map_or(1, char::len_utf8) };
        out.push(&rest[..if keep_ends { at + width } else { at }]);
        rest = &rest[at + width..];
    }
    if !rest.is_empty() {
        out.push(rest);
    }
    out
}

fn partition(name: &str, s: &str, separator: &str) -> Result<Option<Value>> {
    let found = if name == "partition" { s.split_once(separator) } else { s.rsplit_once(separator) };
    let parts = match found {
        Some((a, b)) => [a, separator, b],
        None if name == "partition" => [s, "", ""],
        None => ["", "", s],
    };
    list(parts.into_iter().map(str::to_owned))
}

fn find(name: &str, s: &str, what: &str) -> Result<Option<Value>> {
    let at = if name.starts_with('r') { s.rfind(what) } else { s.find(what) };
    match at {
        Some(byte) => Ok(Some(Value::from(s[..byte].chars().count()))),
        None if name.ends_with("find") => Ok(Some(Value::from(-1))),
        None => Err(invalid("substring not found")),
    }
}

fn padded(name: &str, s: &str, args: &Args) -> Result<Option<Value>> {
    let width = args.integer(0, "width")?.unwrap_or(0).max(0) as usize;
    let fill = if name == "zfill" { "0".into() } else { args.optional_text(1, "fillchar")?.unwrap_or(" ".into()) };
    let missing = width.saturating_sub(s.chars().count());
    meter::charge(s.len() + missing.saturating_mul(fill.len()))?;
    let (left, right) = match name {
        "ljust" => (0, missing),
        "center" => (missing / 2 + (missing & width & 1), missing - missing / 2 - (missing & width & 1)),
        _ => (missing, 0),
    };
    let sign = if name == "zfill" && s.starts_with(['+', '-']) { 1 } else { 0 };
    Ok(Some(Value::from(format!("{}{}{}{}", &s[..sign], fill.repeat(left), &s[sign..], fill.repeat(right)))))
}

fn dict_method(name: &str, value: &Value, args: &Args) -> Result<Option<Value>> {
    let mut out: Vec<Value> = Vec::new();
    match name {
        "get" => {
            let key = args.get(0, "key")?.unwrap_or_default();
            let found = value.get_item(&key)?;
            let fallback = || args.get(1, "default").map(|v| v.unwrap_or_else(|| Value::from(())));
            return Ok(Some(if found.is_undefined() { fallback()? } else { found }));
        }
        "copy" => return Ok(Some(value.clone())),
        "keys" | "values" | "items" => {
            for key in value.try_iter()? {
                meter::charge(32)?;
                out.push(match name {
                    "keys" => key,
                    "values" => value.get_item(&key)?,
                    _ => Value::from(vec![key.clone(), value.get_item(&key)?]),
                });
            }
        }
        _ => return Ok(None),
    }
    Ok(Some(Value::from(out)))
}

fn list_method(name: &str, value: &Value, args: &Args) -> Result<Option<Value>> {
    let what = args.get(0, "value")?.unwrap_or_default();
    match name {
        "count" => Ok(Some(Value::from(value.try_iter()?.filter(|v| *v == what).count()))),
        "index" => match value.try_iter()?.position(|v| v == what) {
            Some(at) => Ok(Some(Value::from(at))),
            None => Err(Error::new(ErrorKind::InvalidOperation, "index: the value is not in the list")),
        },
        "copy" => Ok(Some(value.clone())),
        _ => Ok(None),
    }
}
