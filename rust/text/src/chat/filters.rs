//! Filters, tests, operators and functions as Jinja has them in Python, where minijinja's own differ or are unbounded.

use std::cmp::Ordering;

use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{format_filter, Environment, Error, ErrorKind, FormatStyle, State};

use super::methods::{self, capitalized, lines, replaced, strip, METHODS};
use super::python::{json_of, number, repr_of, str_of, write_str, JsonStyle, Text};
use super::{clock, meter};

type Result<T> = std::result::Result<T, Error>;

const COUNT_LIMIT: i64 = 100_000; // of the numbers that say how many pieces to make

pub fn invalid(what: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, what.to_owned())
}

pub fn install(env: &mut Environment<'static>) {
    operators(env);
    for (name, filter) in METHODS {
        env.add_filter(*filter, move |state: &State, args: Rest<Value>| methods::call(name, state, &args));
    }
    text_filters(env);
    value_filters(env);
    tests(env);
    // Not Jinja's, and able to make lists without end.
    for name in ["chain", "zip", "lines", "split", "bool"] {
        env.remove_filter(name);
    }
    env.add_function("raise_exception", |message: &Value| -> Result<Value> {
        let text = str_of(message)?;
        meter::raise(text.clone());
        Err(invalid(&text))
    });
    env.add_function("strftime_now", |format: &str| -> Result<String> {
        clock::strftime_now(format).ok_or_else(|| invalid("strftime_now: the format cannot be used"))
    });
}

// ---- operators -----------------------------------------------------------------------------------------------------

/// What program.rs puts in place of minijinja's operators.
fn operators(env: &mut Environment<'static>) {
    env.add_filter("+", add);
    env.add_filter("*", multiply);
    env.add_filter("%", remainder);
    env.add_filter("//", floor_divide);
    env.add_filter("~", |a: &Value, b: &Value| -> Result<Value> {
        let mut out = Text::default();
        write_str(&mut out, a)?;
        write_str(&mut out, b)?;
        Ok(out.into_value())
    });
}

fn is_list(v: &Value) -> bool {
    matches!(v.kind(), ValueKind::Seq | ValueKind::Iterable)
}

fn cannot(op: &str, a: &Value, b: &Value) -> Error {
    invalid(&format!("operator {op} does not take {} and {}", a.kind(), b.kind()))
}

enum Pair {
    Integers(i128, i128),
    Floats(f64, f64),
}

fn numbers(op: &str, a: &Value, b: &Value) -> Result<Pair> {
    let numeric = |v: &Value| matches!(v.kind(), ValueKind::Number | ValueKind::Bool);
    if !numeric(a) || !numeric(b) {
        return Err(cannot(op, a, b));
    }
    if let (Ok(x), Ok(y)) = (i128::try_from(a.clone()), i128::try_from(b.clone())) {
        let whole = |v: &Value| v.is_integer() || v.kind() == ValueKind::Bool;
        if whole(a) && whole(b) {
            return Ok(Pair::Integers(x, y));
        }
    }
    let float = |v: &Value| i128::try_from(v.clone()).map(|i| i as f64).or_else(|_| f64::try_from(v.clone()));
    Ok(Pair::Floats(float(a)?, float(b)?))
}

fn integer(op: &str, value: Option<i128>) -> Result<Value> {
    let value = value.ok_or_else(|| invalid(&format!("operator {op}: the result is too large or undefined")))?;
    Ok(i64::try_from(value).map_or_else(|_| Value::from(value), Value::from))
}

fn add(a: &Value, b: &Value) -> Result<Value> {
    if let (Some(x), Some(y)) = (a.as_str(), b.as_str()) {
        meter::charge(x.len() + y.len())?;
        return Ok(Value::from([x, y].concat()));
    }
    if is_list(a) && is_list(b) {
        return collect(a.try_iter()?.chain(b.try_iter()?));
    }
    match numbers("+", a, b)? {
        Pair::Integers(x, y) => integer("+", x.checked_add(y)),
        Pair::Floats(x, y) => Ok(Value::from(x + y)),
    }
}

fn collect(items: impl Iterator<Item = Value>) -> Result<Value> {
    let mut out = Vec::new();
    for item in items {
        meter::charge(32)?;
        out.push(item);
    }
    Ok(Value::from(out))
}

fn multiply(a: &Value, b: &Value) -> Result<Value> {
    let repeated = |v: &Value| v.as_str().is_some() || is_list(v);
    if repeated(a) || repeated(b) {
        let (what, times) = if repeated(a) { (a, b) } else { (b, a) };
        let times = i64::try_from(times.clone()).map_err(|_| cannot("*", a, b))?.max(0) as usize;
        if let Some(text) = what.as_str() {
            meter::charge(text.len().saturating_mul(times))?;
            return Ok(Value::from(text.repeat(times)));
        }
        let items: Vec<Value> = what.try_iter()?.collect();
        meter::charge(items.len().saturating_mul(times).saturating_mul(32))?;
        let count = items.len() * times;
        return Ok(items.into_iter().cycle().take(count).collect());
    }
    match numbers("*", a, b)? {
        Pair::Integers(x, y) => integer("*", x.checked_mul(y)),
        Pair::Floats(x, y) => Ok(Value::from(x * y)),
    }
}

fn remainder(a: &Value, b: &Value) -> Result<Value> {
    if let Some(format) = a.as_str() {
        check_format(format)?;
        let args: Vec<Value> = if is_list(b) { b.try_iter()?.collect() } else { vec![b.clone()] };
        return printf(format, &args);
    }
    match numbers("%", a, b)? {
        // The sign is the divisor's.
        Pair::Integers(x, y) => {
            integer("%", x.checked_rem(y).map(|r| if r != 0 && (r < 0) != (y < 0) { r + y } else { r }))
        }
        Pair::Floats(_, 0.0) => integer("%", None),
        Pair::Floats(x, y) => Ok(Value::from(x - y * (x / y).floor())),
    }
}

fn floor_divide(a: &Value, b: &Value) -> Result<Value> {
    match numbers("//", a, b)? {
        Pair::Integers(x, y) => {
            let quotient = x.checked_div(y).map(|q| if x % y != 0 && (x < 0) != (y < 0) { q - 1 } else { q });
            integer("//", quotient)
        }
        Pair::Floats(_, 0.0) => integer("//", None),
        Pair::Floats(x, y) => Ok(Value::from((x / y).floor())),
    }
}

/// A width in a format makes text out of nothing: four digits are enough for any template.
pub fn check_format(format: &str) -> Result<()> {
    let longest = format.split(|c: char| !c.is_ascii_digit()).map(str::len).max().unwrap_or(0);
    if longest > 3 && format.contains(['%', '{']) {
        return Err(invalid("a format asks for more than 999 characters"));
    }
    Ok(())
}

fn printf(format: &str, args: &[Value]) -> Result<Value> {
    check_format(format)?;
    let text = format_filter(FormatStyle::Printf, format, args)?;
    meter::charge(text.len())?;
    Ok(Value::from(text))
}

// ---- filters of text -----------------------------------------------------------------------------------------------

/// Applies `f` to str(value), as Jinja's filters of text do.
fn of_text(value: &Value, f: impl FnOnce(&str) -> String) -> Result<Value> {
    let made = f(&str_of(value)?);
    meter::charge(made.len())?;
    Ok(Value::from(made))
}

fn text_filters(env: &mut Environment<'static>) {
    env.add_filter("string", |v: &Value| str_of(v).map(Value::from));
    env.add_filter("upper", |v: &Value| of_text(v, str::to_uppercase));
    env.add_filter("lower", |v: &Value| of_text(v, str::to_lowercase));
    env.add_filter("capitalize", |v: &Value| of_text(v, capitalized));
    env.add_filter("title", |v: &Value| of_text(v, |s| titled(s, |c| !"-([{< \t\n\r".contains(c))));
    env.add_filter("trim", |v: &Value, chars: Option<&str>| of_text(v, |s| strip(s, chars, true, true).to_owned()));
    env.add_filter("replace", |v: &Value, old: &Value, new: &Value, count: Option<i64>| -> Result<Value> {
        replaced(&str_of(v)?, &str_of(old)?, &str_of(new)?, count)
    });
    env.add_filter("center", |v: &Value, width: Option<usize>| -> Result<Value> {
        let text = str_of(v)?;
        let missing = width.unwrap_or(80).saturating_sub(text.chars().count());
        meter::charge(text.len().saturating_add(missing))?;
        Ok(Value::from(format!("{}{text}{}", " ".repeat(missing / 2), " ".repeat(missing - missing / 2))))
    });
    env.add_filter("wordcount", |v: &Value| -> Result<usize> { Ok(str_of(v)?.split_whitespace().count()) });
    env.add_filter("format", |format: &str, args: Rest<Value>| printf(format, &args));
    env.add_filter("indent", indent);
    env.add_filter("join", join);
    env.add_filter("pprint", |v: &Value| repr_of(v).map(Value::from));
    for name in ["e", "escape", "forceescape"] {
        env.add_filter(name, |v: &Value| {
            let entity = |c| match c {
                '&' => "&amp;",
                '<' => "&lt;",
                '>' => "&gt;",
                '\'' => "&#39;",
                '"' => "&#34;",
                _ => "",
            };
            of_text(v, |s| {
                let mut out = String::with_capacity(s.len());
                for c in s.chars() {
                    match entity(c) {
                        "" => out.push(c),
                        e => out.push_str(e),
                    }
                }
                out
            })
        });
    }
    env.add_filter("tojson", to_json);
}

/// A capital after everything that is not `inside` a word.
pub fn titled(s: &str, inside: fn(char) -> bool) -> String {
    let mut out = String::with_capacity(s.len());
    let mut within = false;
    for c in s.chars() {
        if within {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
        }
        within = inside(c);
    }
    out
}

fn indent(v: &Value, width: Option<Value>, first: Option<bool>, blank: Option<bool>, named: Kwargs) -> Result<Value> {
    let width = width.or(named.get::<Option<Value>>("width")?).unwrap_or(Value::from(4));
    let first = first.or(named.get("first")?).unwrap_or(false);
    let blank = blank.or(named.get("blank")?).unwrap_or(false);
    named.assert_all_used()?;
    let margin = margin_of(&width)?;
    let text = str_of(v)?;
    let mut out = Text::default();
    // A line end is added first, so that a last empty line counts.
    for (i, line) in lines(&(text + "\n"), false).into_iter().enumerate() {
        if i > 0 {
            out.push("\n")?;
        }
        let wanted = if i == 0 { first } else { blank || !line.is_empty() };
        if wanted {
            out.push(&margin)?;
        }
        out.push(line)?;
    }
    Ok(out.into_value())
}

fn margin_of(width: &Value) -> Result<String> {
    if let Some(text) = width.as_str() {
        return Ok(text.to_owned());
    }
    let n = i64::try_from(width.clone())?;
    if n > 999 {
        return Err(invalid(&format!("an indent of {n}; at most 999 are made")));
    }
    Ok(" ".repeat(n.max(0) as usize))
}

fn join(v: &Value, separator: Option<Value>, attribute: Option<Value>, named: Kwargs) -> Result<Value> {
    let separator = str_of(&separator.or(named.get::<Option<Value>>("d")?).unwrap_or(Value::from("")))?;
    let attribute = attribute.or(named.get::<Option<Value>>("attribute")?);
    named.assert_all_used()?;
    let mut out = Text::default();
    for (i, item) in v.try_iter()?.enumerate() {
        if i > 0 {
            out.push(&separator)?;
        }
        match &attribute {
            Some(key) => write_str(&mut out, &item.get_item(key)?)?,
            None => write_str(&mut out, &item)?,
        }
    }
    Ok(out.into_value())
}

/// json.dumps() as transformers calls it: nothing is escaped for HTML.
fn to_json(v: &Value, args: Rest<Value>) -> Result<Value> {
    let (positional, named) = match args.split_last() {
        Some((last, front)) if last.is_kwargs() => (front, Some(Kwargs::try_from(last.clone())?)),
        _ => (&args[..], None),
    };
    let argument = |index: usize, name: &str| -> Result<Option<Value>> {
        let given = match positional.get(index) {
            Some(value) => Some(value.clone()),
            None => named.as_ref().map_or(Ok(None), |n| n.get::<Option<Value>>(name))?,
        };
        Ok(given.filter(|v| !v.is_none()))
    };
    let ensure_ascii = argument(0, "ensure_ascii")?.is_some_and(|v| v.is_true());
    let indent = argument(1, "indent")?.map(|v| margin_of(&v)).transpose()?;
    let separators = argument(2, "separators")?;
    let sort_keys = argument(3, "sort_keys")?.is_some_and(|v| v.is_true());
    if let Some(named) = &named {
        named.assert_all_used()?;
    }
    let mut style = JsonStyle {
        ensure_ascii,
        item_separator: if indent.is_some() { "," } else { ", " }.into(),
        key_separator: ": ".into(),
        indent,
        sort_keys,
    };
    if let Some(pair) = separators {
        style.item_separator = str_of(&pair.get_item_by_index(0)?)?;
        style.key_separator = str_of(&pair.get_item_by_index(1)?)?;
    }
    json_of(v, &style)
}

// ---- filters of values ---------------------------------------------------------------------------------------------

fn value_filters(env: &mut Environment<'static>) {
    for name in ["length", "count"] {
        env.add_filter(name, |v: &Value| -> Result<usize> {
            if v.is_undefined() {
                return Ok(0);
            }
            v.len().ok_or_else(|| invalid(&format!("a value of type {} has no length", v.kind())))
        });
    }
    env.add_filter("list", |v: &Value| -> Result<Value> {
        if v.is_undefined() {
            return Ok(Value::from(Vec::<Value>::new()));
        }
        collect(v.try_iter()?)
    });
    for name in ["default", "d"] {
        env.add_filter(name, |v: &Value, other: Option<Value>, lax: Option<bool>, named: Kwargs| -> Result<Value> {
            let other = other.or(named.get::<Option<Value>>("default_value")?).unwrap_or(Value::from(""));
            let lax = lax.or(named.get("boolean")?).unwrap_or(false);
            named.assert_all_used()?;
            Ok(if v.is_undefined() || (lax && !v.is_true()) { other } else { v.clone() })
        });
    }
    env.add_filter("int", |v: &Value, fallback: Option<Value>| -> Value {
        parsed(v).map_or(fallback.unwrap_or(Value::from(0)), |x| {
            if v.is_integer() {
                v.clone()
            } else {
                Value::from(x as i64)
            }
        })
    });
    env.add_filter("float", |v: &Value, fallback: Option<Value>| -> Value {
        parsed(v).map_or(fallback.unwrap_or(Value::from(0.0)), Value::from)
    });
    env.add_filter("sum", sum);
    env.add_filter("batch", |state: &State, v: Value, count: i64, fill: Option<Value>| -> Result<Value> {
        check_count(count)?;
        minijinja::filters::batch(state, v, count as usize, fill)
    });
    env.add_filter("slice", |state: &State, v: Value, count: i64, fill: Option<Value>| -> Result<Value> {
        check_count(count)?;
        minijinja::filters::slice(state, v, count as usize, fill)
    });
}

fn sum(v: &Value, attribute: Option<Value>, start: Option<Value>, named: Kwargs) -> Result<Value> {
    let attribute = attribute.or(named.get::<Option<Value>>("attribute")?);
    let mut total = start.or(named.get::<Option<Value>>("start")?).unwrap_or(Value::from(0));
    named.assert_all_used()?;
    for item in v.try_iter()? {
        total = match &attribute {
            Some(key) => add(&total, &item.get_item(key)?)?,
            None => add(&total, &item)?,
        };
    }
    Ok(total)
}

fn check_count(count: i64) -> Result<()> {
    if !(1..=COUNT_LIMIT).contains(&count) {
        return Err(invalid(&format!("a count of {count}; 1 to {COUNT_LIMIT} are possible")));
    }
    meter::charge(32 * count as usize)
}

fn parsed(v: &Value) -> Option<f64> {
    match v.kind() {
        ValueKind::String => v.as_str()?.trim().replace('_', "").parse().ok(),
        ValueKind::Bool => Some(f64::from(u8::from(v.is_true()))),
        ValueKind::Number => number(v, false).parse().ok(),
        _ => None,
    }
}

// ---- tests ---------------------------------------------------------------------------------------------------------

fn tests(env: &mut Environment<'static>) {
    // What has a length and can be indexed; an undefined value counts, as in Jinja.
    env.add_test("sequence", |v: &Value| {
        matches!(v.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::String | ValueKind::Undefined)
    });
    env.add_test("iterable", |v: &Value| {
        v.is_undefined() || v.as_str().is_some() || (!v.is_none() && v.try_iter().is_ok())
    });
    env.add_test("number", |v: &Value| matches!(v.kind(), ValueKind::Number | ValueKind::Bool));
    env.add_test("callable", |v: &Value| v.kind() == ValueKind::Plain && v.as_object().is_some());
    env.add_test("lower", |v: &Value| v.as_str().is_some_and(|s| s.to_lowercase() == s && s.to_uppercase() != s));
    env.add_test("upper", |v: &Value| v.as_str().is_some_and(|s| s.to_uppercase() == s && s.to_lowercase() != s));
    env.add_test("sameas", |a: &Value, b: &Value| a.kind() == b.kind() && a.cmp(b) == Ordering::Equal);
}
