//! Python's methods on strings, lists and dicts, where the library lacks them or reads them differently.

use super::{input, python};
use minijinja::value::{from_args, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat::unknown_method_callback;

fn charge(state: &State, bytes: usize) -> Result<(), Error> {
    state.consume_fuel((bytes / 64) as u64)
}

/// Bytes that the widths and precisions of a format string's fields ask for.
fn widths(format: &str) -> usize {
    let format = format.replace("{{", "");
    let fields = format.split('{').skip(1).filter_map(|field| field.split('}').next()?.split_once(':'));
    fields
        .flat_map(|(_, spec)| spec.split(|c: char| !c.is_ascii_digit()))
        .filter(|digits| !digits.is_empty())
        .map(|digits| digits.parse::<usize>().unwrap_or(usize::MAX))
        .fold(0, usize::saturating_add)
}

/// Python's methods that the library lacks or reads differently.
pub fn call(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        match method {
            "strip" | "lstrip" | "rstrip" => {
                let (chars,): (Option<&str>,) = from_args(args)?;
                let strips = |c: char| match chars {
                    Some(chars) => chars.contains(c),
                    None => input::is_space(c),
                };
                return Ok(Value::from(match method {
                    "strip" => text.trim_matches(strips),
                    "lstrip" => text.trim_start_matches(strips),
                    _ => text.trim_end_matches(strips),
                }));
            }
            "removeprefix" | "removesuffix" => {
                let (part,): (&str,) = from_args(args)?;
                let cut =
                    if method == "removeprefix" { text.strip_prefix(part) } else { text.strip_suffix(part) };
                return Ok(Value::from(cut.unwrap_or(text)));
            }
            "partition" | "rpartition" => {
                let (part,): (&str,) = from_args(args)?;
                if part.is_empty() {
                    return Err(Error::new(ErrorKind::InvalidOperation, "empty separator"));
                }
                let last = method == "rpartition";
                let cut = if last { text.rsplit_once(part) } else { text.split_once(part) };
                let (before, between, after) = match cut {
                    Some((before, after)) => (before, part, after),
                    None if last => ("", "", text),
                    None => (text, "", ""),
                };
                let parts: Vec<Value> = [before, between, after].into_iter().map(Value::from).collect();
                return Ok(Value::from(minijinja::value::Tuple::from(parts)));
            }
            "rsplit" => {
                let (separator, most): (Option<&str>, Option<i64>) = from_args(args)?;
                let most = most.filter(|n| *n >= 0).map_or(usize::MAX, |n| (n as usize).saturating_add(1));
                let mut parts: Vec<Value> = match separator {
                    Some("") => return Err(Error::new(ErrorKind::InvalidOperation, "empty separator")),
                    Some(separator) => text.rsplitn(most, separator).map(Value::from).collect(),
                    None => input::rsplit_spaces(text, most).into_iter().map(Value::from).collect(),
                };
                parts.reverse();
                return Ok(Value::from(parts));
            }
            "index" => {
                let (part,): (&str,) = from_args(args)?;
                return match text.find(part) {
                    Some(at) => Ok(Value::from(text[..at].chars().count())),
                    None => Err(Error::new(ErrorKind::InvalidOperation, "substring not found")),
                };
            }
            "zfill" | "ljust" | "rjust" | "center" => {
                let (width, fill): (i64, Option<&str>) = from_args(args)?;
                let fill = fill.unwrap_or(if method == "zfill" { "0" } else { " " });
                let size = text.chars().count();
                let room = usize::try_from(width).unwrap_or(0).saturating_sub(size);
                charge(state, room.saturating_mul(fill.len()))?;
                if room > 100_000_000 {
                    return Err(Error::new(
                        ErrorKind::InvalidOperation,
                        format!("{method}: {width} is too wide"),
                    ));
                }
                let left = match method {
                    "ljust" => 0,
                    "center" => room / 2 + (room & width as usize & 1),
                    _ => room,
                };
                let (sign, digits) = match text.strip_prefix(['+', '-']) {
                    Some(digits) if method == "zfill" => text.split_at(text.len() - digits.len()),
                    _ => ("", text),
                };
                return Ok(Value::from(format!(
                    "{sign}{}{digits}{}",
                    fill.repeat(left),
                    fill.repeat(room - left)
                )));
            }
            "swapcase" => {
                let () = from_args(args)?;
                let swap = |c: char| {
                    if c.is_uppercase() {
                        c.to_lowercase().to_string()
                    } else {
                        c.to_uppercase().to_string()
                    }
                };
                return Ok(Value::from(text.chars().map(swap).collect::<String>()));
            }
            "casefold" => {
                let () = from_args(args)?;
                return Ok(Value::from(text.to_lowercase().replace('ß', "ss")));
            }
            "format" => charge(state, widths(text))?, // the library makes room for any width
            _ => {}
        }
    }
    if value.kind() == ValueKind::Map && method == "copy" {
        let () = from_args(args)?;
        return Ok(value.clone());
    }
    if matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable) {
        match method {
            "index" => {
                let (wanted,): (Value,) = from_args(args)?;
                return match value.try_iter()?.position(|item| item == wanted) {
                    Some(at) => Ok(Value::from(at)),
                    None => Err(Error::new(
                        ErrorKind::InvalidOperation,
                        format!("{} is not in list", python::text(&wanted)?),
                    )),
                };
            }
            "copy" => {
                let () = from_args(args)?;
                return Ok(value.clone());
            }
            _ => {}
        }
    }
    unknown_method_callback(state, value, method, args)
}
