//! What one rendering may use. A rendering has its own thread, so the account is the thread's.
//!
//! Fuel bounds the number of steps, but a step may double a string: 40 of them are a terabyte. So every step that makes
//! text or lists pays for their bytes, and looks at the clock.

use std::cell::Cell;
use std::time::{Duration, Instant};

use minijinja::{Error, ErrorKind};

pub const OUTPUT_LIMIT: usize = 16 << 20; // bytes of a prompt
const WORK_LIMIT: usize = 128 << 20; // bytes made on the way, all together
const TIME_LIMIT: Duration = Duration::from_secs(5);

thread_local! {
    static LEFT: Cell<usize> = const { Cell::new(0) };
    static DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
    static MARK: Cell<Option<char>> = const { Cell::new(None) };
    static RAISED: Cell<Option<String>> = const { Cell::new(None) };
}

/// Opens the account of this thread's rendering. `mark` is a character that filters must leave as it is.
pub fn open(mark: Option<char>) {
    LEFT.with(|l| l.set(WORK_LIMIT));
    DEADLINE.with(|d| d.set(Some(Instant::now() + TIME_LIMIT)));
    MARK.with(|m| m.set(mark));
    RAISED.with(|r| r.set(None));
}

pub fn charge(bytes: usize) -> Result<(), Error> {
    let left = LEFT.with(Cell::get);
    if bytes > left {
        return Err(limit(&format!("it makes more than {WORK_LIMIT} bytes of text")));
    }
    LEFT.with(|l| l.set(left - bytes));
    // A look at the clock costs 25 ns: once per 4 KiB, and whenever the account was at a multiple by chance.
    if (left ^ (left - bytes)) >> 12 != 0 && DEADLINE.with(Cell::get).is_some_and(|t| Instant::now() > t) {
        return Err(limit(&format!("it runs for more than {} s", TIME_LIMIT.as_secs())));
    }
    Ok(())
}

pub fn limit(what: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("the template is stopped: {what}"))
}

pub fn is_mark(c: char) -> bool {
    MARK.with(Cell::get) == Some(c)
}

/// The text of raise_exception(), to be told from other errors.
pub fn raise(message: String) {
    RAISED.with(|r| r.set(Some(message)));
}
pub fn raised() -> Option<String> {
    RAISED.with(Cell::take)
}
