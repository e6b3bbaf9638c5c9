//! What crosses the C boundary: borrowed and owned strings, and the fence that turns panics into errors.

use std::any::Any;
use std::borrow::Cow;
use std::cell::Cell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Once;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Str {
    pub data: *const u8,
    pub size: usize,
}

impl Str {
    /// # Safety
    /// `data` points to `size` readable bytes that outlive the result, or `size` is 0.
    pub unsafe fn bytes<'a>(self) -> &'a [u8] {
        if self.size == 0 {
            &[]
        } else {
            std::slice::from_raw_parts(self.data, self.size)
        }
    }

    /// # Safety
    /// As `bytes`.
    pub unsafe fn lossy<'a>(self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.bytes())
    }

    pub fn of(text: &str) -> Str {
        Str { data: text.as_ptr(), size: text.len() }
    }
}

#[repr(C)]
pub struct Text {
    data: *mut u8,
    size: usize,
}

impl Text {
    pub const EMPTY: Text = Text { data: std::ptr::null_mut(), size: 0 };

    pub fn new(bytes: impl Into<Vec<u8>>) -> Text {
        let bytes: Box<[u8]> = bytes.into().into_boxed_slice();
        if bytes.is_empty() {
            return Text::EMPTY;
        }
        let size = bytes.len();
        Text { data: Box::into_raw(bytes) as *mut u8, size }
    }
}

#[repr(C)]
pub struct Ids {
    data: *mut i32,
    size: usize,
}

impl Ids {
    pub fn new(ids: Vec<i32>) -> Ids {
        let ids = ids.into_boxed_slice();
        if ids.is_empty() {
            return Ids { data: std::ptr::null_mut(), size: 0 };
        }
        let size = ids.len();
        Ids { data: Box::into_raw(ids) as *mut i32, size }
    }
}

/// # Safety
/// `text` came from this library and is not used again.
#[no_mangle]
pub unsafe extern "C" fn mlxcel_text_free(text: Text) {
    if !text.data.is_null() {
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(text.data, text.size)));
    }
}

/// # Safety
/// `ids` came from this library and is not used again.
#[no_mangle]
pub unsafe extern "C" fn mlxcel_ids_free(ids: Ids) {
    if !ids.data.is_null() {
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(ids.data, ids.size)));
    }
}

fn panic_text(panic: Box<dyn Any + Send>) -> String {
    let what = panic
        .downcast_ref::<&str>()
        .map(|s| s.to_string())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "unknown cause".to_string());
    format!("internal fault: {what}")
}

thread_local! {
    static FENCES: Cell<u32> = const { Cell::new(0) };
}

/// Counts the fences around what this thread runs.
struct Fence;

impl Fence {
    fn new() -> Fence {
        static SILENCED: Once = Once::new();
        SILENCED.call_once(|| {
            let usual = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                if FENCES.with(Cell::get) == 0 {
                    usual(panic);
                }
            }));
        });
        FENCES.with(|fences| fences.set(fences.get() + 1));
        Fence
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        FENCES.with(|fences| fences.set(fences.get() - 1));
    }
}

/// Runs `body`; an error or a panic becomes a sentence, and a panic says nothing more on stderr.
pub fn fenced<T>(body: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let _fence = Fence::new();
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => result,
        Err(panic) => Err(panic_text(panic)),
    }
}

/// `fenced`, with the sentence stored in `error`.
///
/// # Safety
/// `error` may be written.
pub unsafe fn guarded<T>(error: *mut Text, body: impl FnOnce() -> Result<T, String>) -> Option<T> {
    match fenced(body) {
        Ok(value) => Some(value),
        Err(sentence) => {
            *error = Text::new(sentence);
            None
        }
    }
}
