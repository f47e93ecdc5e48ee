//! A template, compiled by minijinja and rewritten for Python's meaning and for bounded work.
//!
//! minijinja's operators make strings and lists without a bound and print them its own way, and it offers no hook for
//! them. So the compiled program is rewritten: an operator becomes a call of our filter of the same meaning (`operators`
//! in filters.rs), raw text is emitted through the formatter, which meters it, and Python's methods come before the
//! keys of a dict (`schema.items()` of a schema that has a key "items").

use std::collections::BTreeMap;
use std::sync::Arc;

use minijinja::machinery::{CompiledTemplate, Instruction, Instructions, TemplateConfig, WhitespaceConfig};
use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Error, Value};

use super::methods::METHODS;

pub struct Program<'s> {
    pub instructions: Instructions<'s>,
    pub blocks: BTreeMap<&'s str, Instructions<'s>>,
}

const NO_CACHE: u8 = !0; // the slot of a looked-up filter; this value: none

pub fn compile(source: &str) -> Result<Program<'_>, Error> {
    let config = TemplateConfig {
        syntax_config: SyntaxConfig::default(),
        // As transformers sets them.
        ws_config: WhitespaceConfig { trim_blocks: true, lstrip_blocks: true, ..Default::default() },
        default_auto_escape: Arc::new(|_| AutoEscape::None),
    };
    let compiled = CompiledTemplate::new("chat template", source, &config)?;
    let blocks = compiled.blocks.iter().map(|(name, code)| (*name, rewrite(code))).collect();
    Ok(Program { instructions: rewrite(&compiled.instructions), blocks })
}

fn rewrite<'s>(code: &Instructions<'s>) -> Instructions<'s> {
    // Where each instruction goes: raw text takes two.
    let mut moved = Vec::with_capacity(code.len() + 1);
    let mut next = 0u32;
    for i in 0..code.len() as u32 {
        moved.push(next);
        next += if matches!(code.get(i), Some(Instruction::EmitRaw(_))) { 2 } else { 1 };
    }
    moved.push(next);
    let to = |target: u32| moved.get(target as usize).copied().unwrap_or(next);

    let mut out = Instructions::new(code.name(), code.source());
    for i in 0..code.len() as u32 {
        let line = code.get_line(i).unwrap_or(0).min(u16::MAX as usize) as u16;
        let filter = |name| Instruction::ApplyFilter(name, Some(2), NO_CACHE);
        let Some(instruction) = code.get(i) else { continue };
        let new = match instruction {
            Instruction::EmitRaw(text) => {
                out.add_with_line(Instruction::LoadConst(Value::from(*text)), line);
                Instruction::Emit
            }
            Instruction::Add => filter("+"),
            Instruction::Mul => filter("*"),
            Instruction::Rem => filter("%"),
            Instruction::IntDiv => filter("//"),
            Instruction::StringConcat => filter("~"),
            Instruction::CallMethod(name, count) => match METHODS.iter().find(|(plain, _)| plain == name) {
                Some((_, filter)) => Instruction::ApplyFilter(filter, *count, NO_CACHE),
                None => instruction.clone(),
            },
            Instruction::Iterate(t) => Instruction::Iterate(to(*t)),
            Instruction::Jump(t) => Instruction::Jump(to(*t)),
            Instruction::JumpIfFalse(t) => Instruction::JumpIfFalse(to(*t)),
            Instruction::JumpIfFalseOrPop(t) => Instruction::JumpIfFalseOrPop(to(*t)),
            Instruction::JumpIfTrueOrPop(t) => Instruction::JumpIfTrueOrPop(to(*t)),
            Instruction::BuildMacro(name, t, flags) => Instruction::BuildMacro(name, to(*t), *flags),
            other => other.clone(),
        };
        out.add_with_line(new, line);
    }
    out
}

/// `{% generation %}` ... `{% endgeneration %}` mark what a model said, for training; they print nothing. Written as an
/// `if` that holds, so that the white space around them is treated as before.
pub fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let Some(length) = rest[start..].find("%}") else { break };
        let tag = &rest[start..start + length + 2];
        let inner = tag[2..tag.len() - 2].trim_start_matches(['-', '+']).trim_end_matches(['-', '+']).trim();
        out.push_str(&rest[..start]);
        match inner {
            "generation" => out.push_str(&tag.replacen("generation", "if true", 1)),
            "endgeneration" => out.push_str(&tag.replacen("endgeneration", "endif", 1)),
            _ => {
                // Not the whole tag: its text may hold another "{%" in a string.
                out.push_str("{%");
                rest = &rest[start + 2..];
                continue;
            }
        }
        rest = &rest[start + tag.len()..];
    }
    out.push_str(rest);
    out
}
