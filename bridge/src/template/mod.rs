//! Chat templates: Jinja as transformers sets it up, rendered by minijinja.

pub mod c_api;
mod filters;
mod input;
mod methods;
mod python;

pub use input::Input;

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior, Value};
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

fn environment() -> Environment<'static> {
    let mut env = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    env.set_syntax(syntax.expect("the delimiters are the usual ones"));
    env.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    env.set_undefined_behavior(UndefinedBehavior::Lenient);
    env.set_recursion_limit(RECURSION);
    env.set_debug(false);
    env.set_unknown_method_callback(methods::call);
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
    filters::add(&mut env);
    env
}

pub struct ChatTemplate {
    env: Environment<'static>,
    asks_null: bool,
}

impl ChatTemplate {
    pub fn new(source: &str) -> Result<ChatTemplate, String> {
        let mut env = environment();
        let source = source.replace("\r\n", "\n").replace('\r', "\n"); // as Jinja reads it
        env.add_template_owned(NAME, without_generation(&source).into_owned()).map_err(|e| {
            match fault(&e) {
                Fault::Broken(sentence) | Fault::Refused(sentence) => sentence,
            }
        })?;
        Ok(ChatTemplate { env, asks_null: input::asks_for_null_content(&source) })
    }

    pub fn render(&self, input: &Input, fuel: u64) -> Result<String, Fault> {
        let variables = input.variables(self.asks_null).map_err(Fault::Broken)?;
        let mut env = self.env.clone();
        env.set_fuel(Some(fuel));
        let template = env.get_template(NAME).map_err(|e| fault(&e))?;
        let text = template.render(variables).map_err(|e| fault(&e))?;
        input.finish(text).map_err(Fault::Broken)
    }
}
