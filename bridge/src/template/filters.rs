//! Filters and tests where Jinja's own differ from the library's, or are missing there.

use super::{input, python};
use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, Value};

const WIDEST: usize = 10_000;

fn wrong(sentence: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, sentence.into())
}

fn tojson(value: &Value, arguments: Rest<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let argument =
        |at, name| Ok::<_, Error>(argument(&arguments, &kwargs, at, name)?.filter(|value| !value.is_none()));
    let ascii = argument(0, "ensure_ascii")?.is_some_and(|v| v.is_true());
    let indent = match argument(1, "indent")? {
        None => None,
        Some(text) if text.as_str().is_some() => text.as_str().map(str::to_string),
        Some(count) => Some(" ".repeat(i64::try_from(count)?.clamp(0, 64) as usize)),
    };
    let (item_separator, key_separator) = match argument(2, "separators")? {
        None => (if indent.is_some() { "," } else { ", " }.to_string(), ": ".to_string()),
        Some(pair) => {
            let parts: Vec<Value> = pair.try_iter()?.collect();
            match parts.as_slice() {
                [item, key] => (python::text(item)?, python::text(key)?),
                _ => {
                    return Err(Error::new(
                        ErrorKind::InvalidOperation,
                        "tojson: separators must be two strings",
                    ))
                }
            }
        }
    };
    let sort_keys = argument(3, "sort_keys")?.is_some_and(|v| v.is_true());
    kwargs.assert_all_used()?;
    let json = python::Json { ascii, indent, item_separator, key_separator, sort_keys };
    Ok(Value::from(json.dump(value)?))
}

/// str(): safe for every kind, and as Python prints.
fn string(value: &Value) -> Result<Value, Error> {
    match value.as_str() {
        Some(_) => Ok(value.clone()),
        None => Ok(Value::from(python::text(value)?)),
    }
}

/// An argument given by place or by name.
fn argument(places: &[Value], kwargs: &Kwargs, place: usize, name: &str) -> Result<Option<Value>, Error> {
    match places.get(place) {
        Some(value) => Ok(Some(value.clone())),
        None => kwargs.get(name),
    }
}

fn is_true(value: Option<Value>) -> bool {
    value.is_some_and(|v| v.is_true())
}

fn count(value: Option<Value>, default: i64) -> Result<i64, Error> {
    value.map_or(Ok(default), i64::try_from)
}

fn indent(state: &State, value: &Value, places: Rest<Value>, kwargs: Kwargs) -> Result<String, Error> {
    let text = python::text(value)?;
    let width = argument(&places, &kwargs, 0, "width")?;
    let first = is_true(argument(&places, &kwargs, 1, "first")?);
    let blank = is_true(argument(&places, &kwargs, 2, "blank")?);
    kwargs.assert_all_used()?;
    let margin = match width.as_ref().and_then(|w| w.as_str()) {
        Some(margin) => margin.to_string(),
        None => " ".repeat((count(width, 4)?.max(0) as usize).min(WIDEST)),
    };
    let text = text + "\n"; // so that a last empty line counts
    let lines = input::lines(&text);
    state.consume_fuel((lines.len().saturating_mul(margin.len()) / 64) as u64)?;
    let mut out = String::with_capacity(text.len() + lines.len() * margin.len());
    for (at, line) in lines.iter().enumerate() {
        if at > 0 {
            out.push('\n');
        }
        if (at > 0 && (blank || !line.is_empty())) || (at == 0 && first) {
            out.push_str(&margin);
        }
        out.push_str(line);
    }
    Ok(out)
}

fn truncate(value: &Value, places: Rest<Value>, kwargs: Kwargs) -> Result<String, Error> {
    let text = python::text(value)?;
    let length = count(argument(&places, &kwargs, 0, "length")?, 255)?;
    let kill = is_true(argument(&places, &kwargs, 1, "killwords")?);
    let end = argument(&places, &kwargs, 2, "end")?.map_or(Ok("...".to_string()), |v| python::text(&v))?;
    let leeway = count(argument(&places, &kwargs, 3, "leeway")?, 5)?;
    kwargs.assert_all_used()?;
    let end_size = end.chars().count() as i64;
    if length < end_size || leeway < 0 {
        return Err(wrong(format!(
            "truncate: expected a length of at least {end_size} and a leeway, got {length}, {leeway}"
        )));
    }
    if text.chars().count() as i64 <= length.saturating_add(leeway) {
        return Ok(text);
    }
    let cut: String = text.chars().take((length - end_size) as usize).collect();
    let kept = if kill { cut.as_str() } else { cut.rsplit_once(' ').map_or(cut.as_str(), |(kept, _)| kept) };
    Ok(format!("{kept}{end}"))
}

fn wordcount(value: &Value) -> Result<usize, Error> {
    let text = python::text(value)?;
    Ok(text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty()).count())
}

fn float(value: &Value, default: Option<f64>) -> f64 {
    let read = match value.as_str() {
        Some(text) => text.trim_matches(input::is_space).replace('_', "").parse().ok(),
        None => f64::try_from(value.clone()).ok(),
    };
    read.or(default).unwrap_or(0.0)
}

/// What has a length and can be indexed.
fn is_sequence(value: &Value) -> bool {
    match value.kind() {
        ValueKind::String | ValueKind::Seq | ValueKind::Map => true,
        ValueKind::Iterable => value.len().is_some(),
        _ => false,
    }
}

pub fn add(env: &mut Environment<'static>) {
    env.add_filter("tojson", tojson);
    env.add_filter("string", string);
    env.add_filter("indent", indent);
    env.add_filter("truncate", truncate);
    env.add_filter("wordcount", wordcount);
    env.add_filter("float", float);
    env.add_filter("filesizeformat", minijinja_contrib::filters::filesizeformat);
    env.add_filter("striptags", minijinja_contrib::filters::striptags);
    env.add_test("sequence", is_sequence);
    env.add_function("cycler", |items: Rest<Value>| minijinja_contrib::globals::cycler(items.0));
    env.add_function("joiner", minijinja_contrib::globals::joiner);
}
