//! Results: a table as they come, CSV, JSON.

use std::fs::File;
use std::io::{IsTerminal, Write};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::call::Call;
use crate::options::{Format, Plan};
use crate::plot;

/// A line of results.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) collective: String,
    pub(crate) bytes: usize,
    pub(crate) count: usize,
    pub(crate) datatype: String,
    /// Of collectives that reduce.
    pub(crate) op: Option<String>,
    /// Median, fastest and slowest round.
    pub(crate) time_us: f64,
    pub(crate) min_us: f64,
    pub(crate) max_us: f64,
    pub(crate) algbw_gbps: f64,
    pub(crate) busbw_gbps: f64,
    pub(crate) iterations: u32,
    /// Wrong elements on the rank with most of them; none: not looked.
    pub(crate) wrong: Option<u64>,
}

impl Row {
    pub(crate) fn new(
        call: &Call,
        seconds: f64,
        min: f64,
        max: f64,
        iterations: u32,
        wrong: Option<u64>,
    ) -> Row {
        let (algbw_gbps, busbw_gbps) = call.bandwidths(seconds);
        Row {
            collective: call.collective.name(),
            bytes: call.bytes(),
            count: call.count,
            datatype: format!("{:?}", call.datatype).to_lowercase(),
            op: call.collective.reduces().then(|| format!("{:?}", call.op).to_lowercase()),
            time_us: seconds * 1e6,
            min_us: min * 1e6,
            max_us: max * 1e6,
            algbw_gbps,
            busbw_gbps,
            iterations,
            wrong,
        }
    }
}

/// Where the rows go: on rank 0 to the user, on others nowhere.
pub(crate) struct Report<'a> {
    plan: &'a Plan,
    through: String,
    ranks: usize,
    out: Option<Box<dyn Write>>,
    colours: bool,
    rows: Vec<Row>,
}

impl<'a> Report<'a> {
    pub(crate) fn new(
        plan: &'a Plan,
        through: &str,
        ranks: usize,
        shown: bool,
    ) -> Result<Report<'a>> {
        let out: Option<Box<dyn Write>> = match &plan.output {
            _ if !shown => None,
            None => Some(Box::new(std::io::stdout())),
            Some(file) => {
                let opened =
                    File::create(file).with_context(|| format!("creating {}", file.display()))?;
                Some(Box::new(opened))
            }
        };
        let colours = plan.output.is_none()
            && std::io::stdout().is_terminal()
            && std::env::var_os("NO_COLOR").is_none();
        let mut report =
            Report { plan, through: through.to_owned(), ranks, out, colours, rows: Vec::new() };
        report.head()?;
        Ok(report)
    }

    fn head(&mut self) -> Result<()> {
        let Some(out) = &mut self.out else { return Ok(()) };
        match self.plan.format {
            Format::Table => {
                writeln!(
                    out,
                    "# {}, {} memory, {} ranks",
                    self.through,
                    self.plan.memory_names(),
                    self.ranks
                )?;
                writeln!(
                    out,
                    "# {:<20} {:>12} {:>11} {:>9} {:>5} {:>11} {:>11} {:>11} {:>7}",
                    "collective",
                    "bytes",
                    "count",
                    "type",
                    "op",
                    "time (us)",
                    "algbw GB/s",
                    "busbw GB/s",
                    "wrong"
                )?;
            }
            Format::Csv => writeln!(
                out,
                "collective,bytes,count,datatype,op,time_us,min_us,max_us,algbw_gbps,busbw_gbps,iterations,wrong"
            )?,
            Format::Json => {}
        }
        Ok(())
    }

    pub(crate) fn row(&mut self, row: Row) -> Result<()> {
        let Some(out) = &mut self.out else { return Ok(()) };
        let op = row.op.as_deref().unwrap_or("-");
        let wrong = row.wrong.map_or("-".to_owned(), |wrong| wrong.to_string());
        match self.plan.format {
            Format::Table => {
                let bad = self.colours && row.wrong.is_some_and(|wrong| wrong > 0);
                let (start, end) = if bad { ("\x1b[31m", "\x1b[0m") } else { ("", "") };
                writeln!(
                    out,
                    "  {:<20} {:>12} {:>11} {:>9} {op:>5} {:>11.2} {:>11.3} {:>11.3} {start}{wrong:>7}{end}",
                    row.collective,
                    row.bytes,
                    row.count,
                    row.datatype,
                    row.time_us,
                    row.algbw_gbps,
                    row.busbw_gbps
                )?;
            }
            Format::Csv => writeln!(
                out,
                "{},{},{},{},{op},{:.3},{:.3},{:.3},{:.4},{:.4},{},{wrong}",
                row.collective,
                row.bytes,
                row.count,
                row.datatype,
                row.time_us,
                row.min_us,
                row.max_us,
                row.algbw_gbps,
                row.busbw_gbps,
                row.iterations
            )?,
            Format::Json => {}
        }
        out.flush()?;
        self.rows.push(row);
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Result<()> {
        let Some(out) = &mut self.out else { return Ok(()) };
        if self.plan.format == Format::Json {
            let all = serde_json::json!({
                "version": env!("CARGO_PKG_VERSION"),
                "through": self.through,
                "memory": self.plan.memory_names(),
                "ranks": self.ranks,
                "results": self.rows,
            });
            serde_json::to_writer_pretty(&mut *out, &all)?;
            writeln!(out)?;
        }
        match &self.plan.plot {
            Some(file) => plot::draw(file, &self.through, self.ranks, &self.rows),
            None => Ok(()),
        }
    }
}
