//! Chat templates: Jinja as transformers sets it up, rendered by minijinja.

pub mod c_api;
mod input;
mod python;

pub use input::Input;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{from_args, Kwargs, Rest, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, UndefinedBehavior, Value};
use minijinja_contrib::pycompat::unknown_method_callback;
use std::borrow::Cow;

const NAME: &str = "chat template";
const RECURSION: usize = 200;

/// What raise_exception threw; carried as the source of the engine's error.
#[derive(Debug)]
struct Refusal(String);

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for Refusal {}

pub enum Fault {
    /// The template failed: its line, and what went wrong.
    Broken(String),
    /// The template's own sentence.
    Refused(String),
}

fn fault(error: &Error) -> Fault {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    let mut deepest = error;
    while let Some(current) = cause {
        if let Some(refusal) = current.downcast_ref::<Refusal>() {
            return Fault::Refused(refusal.0.clone());
        }
        if let Some(inner) = current.downcast_ref::<Error>() {
            deepest = inner;
        }
        cause = current.source();
    }
    let line = deepest.line().or(error.line()).map_or(String::new(), |line| format!(" line {line}"));
    let detail = match (deepest.kind(), deepest.detail()) {
        (ErrorKind::OutOfFuel, _) => "it takes too many steps".to_string(),
        (kind, Some(detail)) => format!("{kind}: {detail}"),
        (kind, None) => kind.to_string(),
    };
    Fault::Broken(format!("{NAME}{line}: {detail}"))
}

/// {% generation %} only marks the assistant's tokens; as `with` it keeps its scope and its trimming.
fn without_generation(source: &str) -> Cow<'_, str> {
    if !source.contains("generation") {
        return Cow::Borrowed(source);
    }
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(open) = rest.find("{%") {
        let Some(close) = rest[open..].find("%}").map(|at| open + at + 2) else { break };
        let tag = &rest[open..close];
        out.push_str(&rest[..open]);
        let inside = tag[2..tag.len() - 2].trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+');
        match inside {
            "generation" => out.push_str(&tag.replacen("generation", "with", 1)),
            "endgeneration" => out.push_str(&tag.replacen("endgeneration", "endwith", 1)),
            _ => {
                out.push_str("{%");
                rest = &rest[open + 2..]; // a tag may hold quoted "%}": go on right behind its opening
                continue;
            }
        }
        rest = &rest[close..];
    }
    out.push_str(rest);
    Cow::Owned(out)
}

fn raise_exception(message: Value) -> Result<Value, Error> {
    let sentence = python::text(&message)?;
    Err(Error::new(ErrorKind::InvalidOperation, sentence.clone()).with_source(Refusal(sentence)))
}

/// datetime.now().strftime(format), which Python leaves to the C library.
fn strftime_now(format: &str) -> Result<String, Error> {
    let bad = || Error::new(ErrorKind::InvalidOperation, "strftime_now: the format holds a NUL");
    let mut pattern = format.to_string();
    pattern.push('.'); // so that an empty result differs from a buffer too small
    let pattern = std::ffi::CString::new(pattern).map_err(|_| bad())?;
    let mut buffer = vec![0u8; 256 + 64 * format.len().min(16 * 1024)];
    // SAFETY: `now` and `broken_down` are initialised before use; strftime writes within the buffer.
    let written = unsafe {
        let now = libc::time(std::ptr::null_mut());
        let mut broken_down: libc::tm = std::mem::zeroed();
        libc::localtime_r(&now, &mut broken_down);
        libc::strftime(buffer.as_mut_ptr().cast(), buffer.len(), pattern.as_ptr(), &broken_down)
    };
    if written == 0 {
        return Err(Error::new(ErrorKind::InvalidOperation, "strftime_now: the format is too long"));
    }
    buffer.truncate(written - 1);
    Ok(String::from_utf8_lossy(&buffer).into_owned())
}

fn tojson(value: &Value, arguments: Rest<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let argument = |at: usize, name: &str| -> Result<Option<Value>, Error> {
        Ok(match arguments.get(at) {
            Some(value) => Some(value.clone()),
            None => kwargs.get::<Option<Value>>(name)?,
        }
        .filter(|value| !value.is_none()))
    };
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
                _ => return Err(Error::new(ErrorKind::InvalidOperation, "tojson: separators must be two strings")),
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

fn charge(state: &State, bytes: usize) -> Result<(), Error> {
    state.consume_fuel((bytes / 64) as u64)
}

/// Python's methods that the library lacks or reads differently.
fn methods(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
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
                let cut = if method == "removeprefix" { text.strip_prefix(part) } else { text.strip_suffix(part) };
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
                charge(state, room)?;
                if room > 100_000_000 {
                    return Err(Error::new(ErrorKind::InvalidOperation, format!("{method}: {width} is too wide")));
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
                return Ok(Value::from(format!("{sign}{}{digits}{}", fill.repeat(left), fill.repeat(room - left))));
            }
            "swapcase" => {
                let () = from_args(args)?;
                let swap = |c: char| if c.is_uppercase() { c.to_lowercase().to_string() } else { c.to_uppercase().to_string() };
                return Ok(Value::from(text.chars().map(swap).collect::<String>()));
            }
            "casefold" => {
                let () = from_args(args)?;
                return Ok(Value::from(text.to_lowercase().replace('ß', "ss")));
            }
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
                    None => Err(Error::new(ErrorKind::InvalidOperation,
                        format!("{} is not in list", python::text(&wanted)?))),
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

fn environment() -> Environment<'static> {
    let mut env = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    env.set_syntax(syntax.expect("the delimiters are the usual ones"));
    env.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    env.set_undefined_behavior(UndefinedBehavior::Lenient);
    env.set_recursion_limit(RECURSION);
    env.set_debug(false);
    env.set_unknown_method_callback(methods);
    env.set_formatter(|out, _, value| {
        let written = match value.as_str() {
            Some(text) => out.write_str(text),
            None if value.is_undefined() => Ok(()),
            None => out.write_str(&python::text(value)?),
        };
        written.map_err(|_| Error::new(ErrorKind::WriteFailure, "cannot write the output"))
    });
    env.add_function("raise_exception", raise_exception);
    env.add_function("strftime_now", strftime_now);
    env.add_filter("tojson", tojson);
    env.add_filter("string", string);
    env
}

pub struct ChatTemplate {
    env: Environment<'static>,
}

impl ChatTemplate {
    pub fn new(source: &str) -> Result<ChatTemplate, String> {
        let mut env = environment();
        env.add_template_owned(NAME, without_generation(source).into_owned()).map_err(|e| match fault(&e) {
            Fault::Broken(sentence) | Fault::Refused(sentence) => sentence,
        })?;
        Ok(ChatTemplate { env })
    }

    pub fn render(&self, input: &Input, fuel: u64) -> Result<String, Fault> {
        let variables = input.variables().map_err(Fault::Broken)?;
        let mut env = self.env.clone();
        env.set_fuel(Some(fuel));
        let template = env.get_template(NAME).map_err(|e| fault(&e))?;
        let text = template.render(variables).map_err(|e| fault(&e))?;
        input.finish(text).map_err(Fault::Broken)
    }
}
