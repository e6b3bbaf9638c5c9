//! What a chat template sees: the messages as transformers hands them over, and the end of a prompt that
//! continues the last message.

use minijinja::Value;
use serde_json::{Map, Value as Json};

/// Marks the end of the message to continue; no template trims letters.
const TAG: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

/// str.isspace for one character.
pub fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1C}'..='\u{1F}').contains(&c)
}

/// str.splitlines().
pub fn lines(text: &str) -> Vec<&str> {
    let ends = |c: char| {
        matches!(
            c,
            '\n' | '\r' | '\u{B}' | '\u{C}' | '\u{1C}'..='\u{1E}' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    let mut out = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let at = rest.find(ends).unwrap_or(rest.len());
        out.push(&rest[..at]);
        let end = &rest[at..];
        let width = if end.starts_with("\r\n") { 2 } else { end.chars().next().map_or(0, char::len_utf8) };
        rest = &end[width..];
    }
    out
}

/// str.rsplit() at runs of spaces, from the right, into at most `most` parts.
pub fn rsplit_spaces(text: &str, most: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text.trim_end_matches(is_space);
    while !rest.is_empty() {
        if parts.len() + 1 >= most {
            parts.push(rest.trim_start_matches(is_space));
            break;
        }
        match rest.rfind(is_space) {
            Some(at) => {
                let width = rest[at..].chars().next().map_or(1, char::len_utf8);
                parts.push(&rest[at + width..]);
                rest = rest[..at].trim_end_matches(is_space);
            }
            None => {
                parts.push(rest);
                break;
            }
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

pub struct Input {
    messages: Vec<Json>,
    tools: Json,
    variables: Map<String, Json>,
    add_generation_prompt: bool,
    /// The text to continue, when one is.
    last: Option<String>,
}

fn value(json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(b) => Value::from(*b),
        Json::Number(n) => match (n.as_i64(), n.as_u64()) {
            (Some(n), _) => Value::from(n),
            (None, Some(n)) => Value::from(n),
            (None, None) => Value::from(n.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(s) => Value::from(s.as_str()),
        Json::Array(items) => items.iter().map(value).collect::<Vec<Value>>().into(),
        Json::Object(map) => Value::from_pairs(map.iter().map(|(key, item)| (key.as_str(), value(item)))),
    }
}

/// Whether a template asks if a message's content is none. To others a turn of nothing but tool calls has no
/// content at all, as transformers shows it.
pub fn asks_for_null_content(source: &str) -> bool {
    source.match_indices("content").any(|(at, word)| {
        let rest = source[at + word.len()..].trim_start_matches(['\'', '"', ']', ')']).trim_start();
        let question = match rest.get(..2) {
            Some("is") => rest[2..].strip_prefix(is_space).map(str::trim_start),
            Some("==" | "!=") => Some(rest[2..].trim_start()),
            _ => None,
        };
        question.is_some_and(|rest| {
            let rest = rest.strip_prefix("not").and_then(|r| r.strip_prefix(is_space)).unwrap_or(rest);
            let rest = rest.trim_start();
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            matches!(&rest[..end], "none" | "None")
        })
    })
}

fn message_value(message: &Json, null_content: bool) -> Value {
    match message {
        Json::Object(map) => Value::from_pairs(
            map.iter()
                .filter(|(_, item)| null_content || !item.is_null())
                .map(|(key, item)| (key.as_str(), value(item))),
        ),
        other => value(other),
    }
}

fn parse(what: &str, json: &str) -> Result<Json, String> {
    serde_json::from_str(json).map_err(|e| format!("{what}: {e}"))
}

/// Keys without a value are not there at all, and a thought is known under each of its names. Only a content
/// of null stays: whether it shows is the template's affair.
fn tidy(message: Json) -> Result<Json, String> {
    let Json::Object(mut map) = message else { return Err("messages: each must be an object".to_string()) };
    map.retain(|key, item| !item.is_null() || key == "content");
    if let Some(thought) =
        ["reasoning_content", "thinking", "reasoning"].iter().find_map(|key| map.get(*key)).cloned()
    {
        if !map.contains_key("thinking") {
            map.shift_insert(0, "thinking".to_string(), thought.clone());
        }
        map.insert("reasoning_content".to_string(), thought);
    }
    Ok(Json::Object(map))
}

impl Input {
    pub fn new(
        messages: &str,
        tools: &str,
        variables: &str,
        add_generation_prompt: bool,
        continue_final_message: bool,
    ) -> Result<Input, String> {
        let Json::Array(messages) = parse("messages", messages)? else {
            return Err("messages: must be an array".to_string());
        };
        let messages = messages.into_iter().map(tidy).collect::<Result<Vec<_>, _>>()?;
        let tools = if tools.is_empty() { Json::Null } else { parse("tools", tools)? };
        if !matches!(tools, Json::Null | Json::Array(_)) {
            return Err("tools: must be an array".to_string());
        }
        let variables = match if variables.is_empty() { Json::Null } else { parse("variables", variables)? } {
            Json::Null => Map::new(),
            Json::Object(map) => map,
            _ => return Err("variables: must be an object".to_string()),
        };
        let mut input = Input { messages, tools, variables, add_generation_prompt, last: None };
        if continue_final_message {
            if add_generation_prompt {
                return Err("continue_final_message and add_generation_prompt exclude each other".to_string());
            }
            input.tag_last()?;
        }
        Ok(input)
    }

    /// Puts the tag behind the last text of the last message.
    fn tag_last(&mut self) -> Result<(), String> {
        let content = self.messages.last_mut().and_then(|message| message.get_mut("content"));
        let text = match content {
            Some(Json::Array(blocks)) => blocks.iter_mut().rev().find_map(|block| block.get_mut("text")),
            other => other,
        };
        match text {
            Some(Json::String(text)) => {
                self.last = Some(text.clone());
                text.push_str(TAG);
                Ok(())
            }
            _ => Err("continue_final_message: the last message has no text to continue".to_string()),
        }
    }

    /// `null_content`: a content of null is there, and none.
    pub fn variables(&self, null_content: bool) -> Result<Value, String> {
        let messages: Vec<Value> = self.messages.iter().map(|m| message_value(m, null_content)).collect();
        let own = [
            ("messages", messages.into()),
            ("tools", value(&self.tools)),
            ("documents", Value::from(())),
            ("add_generation_prompt", Value::from(self.add_generation_prompt)),
        ];
        // the caller's variables first: a request may pass documents, but not another conversation
        let given = self
            .variables
            .iter()
            .filter(|(key, _)| !matches!(key.as_str(), "messages" | "add_generation_prompt"));
        let given: Vec<(&str, Value)> = given.map(|(key, item)| (key.as_str(), value(item))).collect();
        let own = own.into_iter().filter(|(key, _)| !given.iter().any(|(other, _)| other == key));
        Ok(Value::from_pairs(own.chain(given.iter().cloned()).collect::<Vec<_>>()))
    }

    /// Cuts the text behind the message to continue.
    pub fn finish(&self, mut text: String) -> Result<String, String> {
        let Some(last) = &self.last else { return Ok(text) };
        let bare = TAG.trim_end();
        let at = text.rfind(bare).filter(|_| text.contains(last.trim_matches(is_space)));
        let Some(at) = at else {
            return Err("continue_final_message: the template does not show the last message as it stands"
                .to_string());
        };
        let kept = text[at..].starts_with(TAG);
        text.truncate(at);
        if !kept {
            text.truncate(text.trim_end_matches(is_space).len()); // the template trimmed the message: so do we
        }
        Ok(text)
    }
}
