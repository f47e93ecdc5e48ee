//! Chat templates in Hugging Face's dialect of Jinja: what `transformers` renders, with bounded work.
//!
//!   `program`  compiles a template and rewrites it for Python's meaning and metered work
//!   `filters`, `methods`, `python`  that meaning
//!   `meter`    what one rendering may use
//!
//! A template comes with a model and is as hostile as any file; what it renders comes from users.

mod abi;
mod clock;
mod filters;
mod meter;
mod methods;
mod program;
mod python;

use std::sync::OnceLock;

use minijinja::machinery::{make_string_output, Vm};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Value};

use crate::abi::catching;
use crate::error::{Failure, Kind, Result};
use meter::OUTPUT_LIMIT;

const SOURCE_LIMIT: usize = 256 << 10; // bytes; the longest in use have 20 KiB
const INPUT_LIMIT: usize = 64 << 20; // bytes of JSON
const FUEL: u64 = 4_000_000; // steps; a turn of a conversation takes 50 to 500
const RECURSION: usize = 100; // levels of macros and loops
                              // For the thread that renders: values may be nested as deep as there are steps, and are freed by recursion. Pages that
                              // are not touched cost nothing.
const STACK: usize = 512 << 20;

pub struct Template {
    source: String,
    bos: String,
    eos: String,
}

impl Template {
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<Self> {
        if source.len() > SOURCE_LIMIT {
            let n = source.len();
            return Err(Failure::unsupported(format!("the chat template has {n} bytes; the limit is {SOURCE_LIMIT}")));
        }
        let template = Template { source: program::adapted(source), bos: bos.into(), eos: eos.into() };
        on_a_thread(|| {
            let compiled = program::compile(&template.source);
            compiled
                .map(|_| ())
                .map_err(|e| Failure::unsupported(format!("the chat template does not parse: {}", told(&e))))
        })?;
        Ok(template)
    }

    /// `variables` is a JSON object. `mark`, a character that stands nowhere else, comes out as it went in.
    pub fn render(&self, variables: &[u8], mark: Option<char>) -> Result<String> {
        if variables.len() > INPUT_LIMIT {
            let n = variables.len();
            return Err(Failure::argument(format!("the conversation has {n} bytes; the limit is {INPUT_LIMIT}")));
        }
        on_a_thread(|| self.render_here(variables, mark))
    }

    fn render_here(&self, variables: &[u8], mark: Option<char>) -> Result<String> {
        let given: Value = serde_json::from_slice(variables)
            .map_err(|e| Failure::argument(format!("the conversation cannot be read: {e}")))?;
        let tokens = [("bos_token", Value::from(&self.bos[..])), ("eos_token", Value::from(&self.eos[..]))];
        let tokens: Value = tokens.into_iter().filter(|(_, v)| v.is_true()).collect();
        let root = minijinja::value::merge_maps([given, tokens]);
        let program = program::compile(&self.source).map_err(|e| Failure::unsupported(told(&e)))?;
        meter::open(mark);
        let mut out = String::new();
        let mut output = make_string_output(&mut out);
        let vm = Vm::new(environment());
        let result = vm.eval(&program.instructions, root, &program.blocks, &mut output, AutoEscape::None).map(|_| ());
        match (result, meter::raised()) {
            (Ok(()), _) if out.len() > OUTPUT_LIMIT => {
                let n = out.len();
                Err(Failure::argument(format!("the chat template made {n} bytes; the limit is {OUTPUT_LIMIT}")))
            }
            (Ok(()), _) => Ok(out),
            (Err(_), Some(text)) => Err(Failure::argument(text)),
            (Err(e), None) => Err(Failure::argument(format!("the chat template cannot be rendered: {}", told(&e)))),
        }
    }
}

fn environment() -> &'static Environment<'static> {
    static ENVIRONMENT: OnceLock<Environment<'static>> = OnceLock::new();
    ENVIRONMENT.get_or_init(|| {
        let mut env = Environment::new();
        env.set_fuel(Some(FUEL));
        env.set_recursion_limit(RECURSION);
        env.set_debug(false);
        env.set_formatter(|out, _, value| {
            let written = match value.as_str() {
                Some(text) => meter::charge(text.len()).map(|()| out.write_str(text))?,
                None => out.write_str(&python::str_of(value)?),
            };
            written.map_err(|_| Error::from(ErrorKind::WriteFailure))
        });
        filters::install(&mut env);
        env
    })
}

/// Runs `f` on a thread with room for its recursion. Everything it made is freed there, too.
fn on_a_thread<T: Send>(f: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, || catching(Kind::Internal, f));
        let thread = thread.map_err(|e| Failure::exhausted(format!("no thread for the chat template: {e}")))?;
        thread.join().unwrap_or_else(|_| Err(Failure::new(Kind::Internal, "the rendering thread died")))
    })
}

/// An error of the template in one line, with the line of the template.
fn told(error: &Error) -> String {
    let what = match error.kind() {
        ErrorKind::OutOfFuel => format!("it takes more than {FUEL} steps"),
        _ => error.detail().map_or_else(|| error.kind().to_string(), str::to_owned),
    };
    match error.line() {
        Some(line) => format!("line {line}: {what}"),
        None => what,
    }
}
