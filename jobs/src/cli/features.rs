//! `features`: a script of the feature language to definitions.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use types::Result;

use super::{Context, Done};
use crate::features;
use crate::input_file::read_input_text;
use crate::installation::now;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  basestream features payments.script --check\n  basestream features payments.script --out shop")]
pub(super) struct FeaturesArgs {
    /// The script: lines of set-source, set-sink, add-field, add-macro and add-feature
    script: PathBuf,
    /// The project's folder: gets streams, views and a sink, and settings if it has none
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    out: PathBuf,
    /// Write nothing; list the mistakes, or the files that would be written or are there with different content
    #[arg(long)]
    check: bool,
}

pub(super) async fn features(context: &Context, args: FeaturesArgs) -> Result<Done> {
    let text = read_input_text(&args.script)?;
    let name = args.script.file_name().unwrap_or(args.script.as_os_str()).to_string_lossy().into_owned();
    let translated = features::translate(&name, &text);
    let mistakes = match translated.mistakes.is_empty() {
        true => features::check(&translated.files, &context.functions, now()).await?,
        false => translated.mistakes,
    };
    let place = |mistake: &features::Mistake| format!("{}:{}: {}", args.script.display(), mistake.line, mistake.message);
    let mistakes: Vec<String> = mistakes.iter().map(place).collect();
    let ok = mistakes.is_empty();
    let written = if ok && !args.check { features::write(&args.out, &translated.files)? } else { Vec::new() };
    let differing = if ok && args.check { features::differing(&args.out, &translated.files)? } else { Vec::new() };
    let result = json!({ "ok": ok, "mistakes": mistakes, "files": translated.files, "written": written, "differing": differing });
    context.output.print(&result, || {
        let mut lines = mistakes.clone();
        lines.extend(written.iter().map(|path| format!("wrote {}", path.display())));
        if !differing.is_empty() {
            lines.extend(differing.iter().map(|path| format!("{} exists with different content", path.display())));
            lines.push("nothing would be written: remove what is there, or name another folder with --out".to_owned());
        } else if ok && args.check {
            lines.extend(translated.files.iter().map(|file| format!("would write {}", args.out.join(&file.path).display())));
        }
        lines.join("\n")
    })?;
    Ok(if ok { Done::Success } else { Done::Found })
}
