//! A template, compiled by minijinja and rewritten for Python's meaning and for bounded work.
//!
//! minijinja's operators make strings and lists without a bound and print them its own way, and it offers no hook for
//! them. So the compiled program is rewritten: an operator becomes a call of our filter of the same meaning (`operators`
//! in filters.rs), raw text is emitted through the formatter, which meters it, and Python's methods come before the
//! keys of a dict (`schema.items()` of a schema that has a key "items").

use std::collections::BTreeMap;
use std::sync::Arc;

use minijinja::machinery::{
    tokenize, CompiledTemplate, Instruction, Instructions, Span, TemplateConfig, Token, WhitespaceConfig,
};
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
        ws_config: white_space(),
        default_auto_escape: Arc::new(|_| AutoEscape::None),
    };
    let compiled = CompiledTemplate::new("chat template", source, &config)?;
    let blocks = compiled.blocks.iter().map(|(name, code)| (*name, rewrite(code))).collect();
    Ok(Program { instructions: rewrite(&compiled.instructions), blocks })
}

/// As transformers sets it.
fn white_space() -> WhitespaceConfig {
    WhitespaceConfig { trim_blocks: true, lstrip_blocks: true, ..Default::default() }
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

/// A source as minijinja is given it.
///
/// Every line ends in "\n", as Jinja has it before it reads anything: a file saved on Windows is the same template.
///
/// `{% generation %}` ... `{% endgeneration %}` mark what a model said, for training, and print nothing: they become an
/// `if` that holds, so that the white space around them is treated as before.
///
/// The compiler works out operators between constants by itself, in its own meaning and without our bounds
/// (`'x' * 100000000`). So where a template multiplies or uses `~`, its numbers are written as `(5|int)`, which is no
/// constant.
pub fn adapted(source: &str) -> String {
    let source = &source.replace("\r\n", "\n").replace('\r', "\n");
    let mut numbers: Vec<(Span, &str)> = Vec::new();
    let mut tags: Vec<(Span, &str)> = Vec::new();
    let mut operators = false;
    let (mut after_dot, mut after_start) = (false, false);
    for token in tokenize(source, false, SyntaxConfig::default(), white_space()) {
        let Ok((token, span)) = token else { return source.into() }; // compiling will say what is wrong
        match token {
            Token::Mul | Token::Pow | Token::Tilde => operators = true,
            Token::Int(_) | Token::Int128(_) if !after_dot => numbers.push((span, "int")),
            Token::Float(_) if !after_dot => numbers.push((span, "float")),
            Token::Ident("generation") if after_start => tags.push((span, "if true")),
            Token::Ident("endgeneration") if after_start => tags.push((span, "endif")),
            _ => {}
        }
        after_dot = matches!(token, Token::Dot);
        after_start = matches!(token, Token::BlockStart);
    }
    let text = |span: Span| &source[span.start_offset as usize..span.end_offset as usize];
    let mut edits: Vec<(Span, String)> = tags.into_iter().map(|(span, new)| (span, new.to_owned())).collect();
    if operators {
        edits.extend(numbers.into_iter().map(|(span, filter)| (span, format!("({}|{filter})", text(span)))));
    }
    edits.sort_by_key(|(span, _)| span.start_offset);
    let mut out = String::with_capacity(source.len() + 8 * edits.len());
    let mut done = 0;
    for (span, new) in edits {
        out.extend([&source[done..span.start_offset as usize], &new]);
        done = span.end_offset as usize;
    }
    out + &source[done..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tags_and_numbers_are_adapted() {
        assert_eq!(adapted("{%- generation -%}x{% endgeneration %}"), "{%- if true -%}x{% endif %}");
        let same = "{{ '{% generation %}' }}{# {% generation %} #}{% raw %}{% generation %}{% endraw %}{{ 5 + x.0 }}";
        assert_eq!(adapted(same), same);
        assert_eq!(adapted("{{ 'x' * 5 + y.0 * 1.5 }} 7 '8'"), "{{ 'x' * (5|int) + y.0 * (1.5|float) }} 7 '8'");
    }
}
