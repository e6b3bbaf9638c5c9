//! The C functions of include/mlxcel_bridge.h for chat templates.

use super::{ChatTemplate, Fault, Input};
use crate::ffi::{fenced, guarded, Str, Text};

#[repr(C)]
pub struct RawInput {
    messages: Str,
    tools: Str,
    variables: Str,
    add_generation_prompt: bool,
    continue_final_message: bool,
}

/// # Safety
/// As the header says: `source` readable, `error` writable.
#[no_mangle]
pub unsafe extern "C" fn mlxcel_template_new(source: Str, error: *mut Text) -> *mut ChatTemplate {
    match guarded(error, || ChatTemplate::new(&source.lossy())) {
        Some(template) => Box::into_raw(Box::new(template)),
        None => std::ptr::null_mut(),
    }
}

/// # Safety
/// `template` came from this library and is not used again.
#[no_mangle]
pub unsafe extern "C" fn mlxcel_template_free(template: *mut ChatTemplate) {
    if !template.is_null() {
        drop(Box::from_raw(template));
    }
}

/// # Safety
/// Valid pointers, as the header says.
#[no_mangle]
pub unsafe extern "C" fn mlxcel_template_render(
    template: *const ChatTemplate,
    input: *const RawInput,
    fuel: u64,
    text: *mut Text,
    fault: *mut i32,
    error: *mut Text,
) -> bool {
    let raw = &*input;
    let rendered = fenced(|| {
        let input = Input::new(
            &raw.messages.lossy(),
            &raw.tools.lossy(),
            &raw.variables.lossy(),
            raw.add_generation_prompt,
            raw.continue_final_message,
        )?;
        Ok((*template).render(&input, fuel))
    });
    let (kind, sentence) = match rendered {
        Ok(Ok(string)) => {
            *text = Text::new(string);
            return true;
        }
        Ok(Err(Fault::Refused(sentence))) => (2, sentence),
        Ok(Err(Fault::Broken(sentence))) | Err(sentence) => (1, sentence),
    };
    *fault = kind;
    *error = Text::new(sentence);
    false
}
