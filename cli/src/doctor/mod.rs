//! `hetccl doctor`: what this host can do with GPU memory, and for each way why not.

mod libraries;
mod limits;

use std::io::Write;

use hetccl_runtime::gpu::{DeviceInfo, Gpus, Vendor};
use hetccl_runtime::{Ucx, ucx};
use serde::Serialize;

use crate::sysfs::{self, System};

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hetccl doctor\n  hetccl doctor --json | jq .paths\n\n\
    Exit codes: 0 the report was printed, whatever it says; 1 it could not be.")]
pub struct Args {
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

/// The report. Sizes in bytes.
#[derive(Serialize)]
struct Report {
    drivers: Vec<DriverReport>,
    devices: Vec<DeviceReport>,
    ucx: Line,
    /// UCX's modules for device memory and vendors' collective libraries, where they are installed.
    libraries: Vec<Line>,
    nics: Vec<NicReport>,
    host: Vec<Line>,
    paths: Vec<Line>,
}

/// A vendor's driver, or why there is none.
#[derive(Serialize)]
struct DriverReport {
    vendor: &'static str,
    found: bool,
    detail: String,
}

#[derive(Serialize)]
struct DeviceReport {
    vendor: &'static str,
    number: u32,
    name: String,
    memory_bytes: usize,
    pci_bus_id: String,
    uuid: String,
    /// How much of its memory the CPU and other devices can address at once.
    large_bar: Line,
}

#[derive(Serialize)]
struct NicReport {
    name: String,
    /// Between the NIC and each device, nearest first.
    distances: Vec<String>,
}

/// Yes, or no and why.
#[derive(Serialize)]
struct Line {
    what: String,
    yes: bool,
    why: String,
}

impl Line {
    fn yes(what: impl Into<String>, why: impl Into<String>) -> Line {
        Line { what: what.into(), yes: true, why: why.into() }
    }

    fn no(what: impl Into<String>, why: impl Into<String>) -> Line {
        Line { what: what.into(), yes: false, why: why.into() }
    }
}

/// Looks and prints.
///
/// # Errors
/// When the output can't be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let report = examine(&System::here());
    let mut out = std::io::stdout().lock();
    let written = if args.json {
        serde_json::to_writer_pretty(&mut out, &report)
            .map_err(Into::into)
            .and_then(|()| writeln!(out))
    } else {
        print(&report, &mut out)
    };
    match written {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

fn examine(system: &System) -> Report {
    // UCX first: it is only looked for while this process has one thread, and drivers start some.
    let ucx = ucx();
    let (gpus, missing) = Gpus::discover(0);
    let mut drivers = Vec::new();
    let mut devices = Vec::new();
    for driver in gpus.drivers() {
        let vendor = driver.vendor();
        let detail = format!("version {}, {} devices", driver.version(), driver.devices());
        drivers.push(DriverReport { vendor: vendor.name(), found: true, detail });
        for number in 0..driver.devices() {
            match driver.info(number) {
                Ok(info) => devices.push(device(system, vendor, number, info)),
                Err(error) => drivers.push(DriverReport {
                    vendor: vendor.name(),
                    found: false,
                    detail: format!("device {number}: {error}"),
                }),
            }
        }
    }
    for (vendor, error) in missing {
        let detail = error.to_string();
        drivers.push(DriverReport { vendor: vendor.name(), found: false, detail });
    }
    let nics = system.rdma().devices().iter().map(|nic| distances(system, nic, &devices)).collect();
    let paths = paths(system, &devices, &ucx);
    let libraries = libraries::examine(&drivers, &ucx);
    Report {
        drivers,
        devices,
        ucx: ucx_line(&ucx),
        libraries,
        nics,
        host: limits::limits(system),
        paths,
    }
}

fn device(system: &System, vendor: Vendor, number: u32, info: DeviceInfo) -> DeviceReport {
    let large_bar = match system.largest_bar_bytes(&info.pci_bus_id) {
        Some(bar) if bar >= info.memory_bytes as u64 / 2 => {
            Line::yes("large BAR", format!("{} can be addressed", mib(bar)))
        }
        Some(bar) => Line::no(
            "large BAR",
            format!("{} can be addressed; resizable BAR in the firmware may allow more", mib(bar)),
        ),
        None => Line::no("large BAR", format!("PCI device {} is not in sysfs", info.pci_bus_id)),
    };
    DeviceReport {
        vendor: vendor.name(),
        number,
        name: info.name,
        memory_bytes: info.memory_bytes,
        pci_bus_id: info.pci_bus_id,
        uuid: info.uuid.iter().map(|byte| format!("{byte:02x}")).collect(),
        large_bar,
    }
}

fn distances(system: &System, nic: &str, devices: &[DeviceReport]) -> NicReport {
    let place = system.rdma_device(nic).join("device");
    let mut distances: Vec<_> = devices
        .iter()
        .map(|device| {
            let distance = sysfs::distance(&place, &system.pci(&device.pci_bus_id));
            (distance, format!("{} {}: {}", device.vendor, device.number, distance.words()))
        })
        .collect();
    distances.sort();
    let distances = distances.into_iter().map(|(_, text)| text).collect();
    NicReport { name: nic.to_owned(), distances }
}

fn ucx_line(ucx: &Result<Ucx, String>) -> Line {
    match ucx {
        Ok(ucx) => {
            let memory: Vec<&str> = ucx.reaches.iter().map(|&memory| memory.name()).collect();
            Line::yes("UCX", format!("{}; memory types: {}", ucx.version, memory.join(", ")))
        }
        Err(why) => Line::no("UCX", format!("{why}; Open MPI's own messages carry the data")),
    }
}

/// The ways that device buffers can take.
fn paths(system: &System, devices: &[DeviceReport], ucx: &Result<Ucx, String>) -> Vec<Line> {
    let mut paths = Vec::new();
    for &vendor in Vendor::ALL {
        let name = vendor.name();
        let count = devices.iter().filter(|device| device.vendor == name).count();
        let own = |what: &str| format!("{name}: {what}");
        if count == 0 {
            paths.push(Line::no(own("device buffers"), "there is no device"));
            continue;
        }
        paths.push(Line::yes(own("device buffers"), "any kind of the vendor's memory"));
        paths.push(if devices.len() == 1 {
            Line::yes(own("one rank works for all on the GPU"), "it is the only device here")
        } else {
            Line::no(
                own("one rank works for all on the GPU"),
                "there are several devices; a job whose ranks see only one of them can",
            )
        });
        paths.push(Line::yes(
            own("peers' memory by IPC handle"),
            "on this host, if the driver has handles for the memory and the ranks may see each other (one IPC and PID \
             namespace)",
        ));
        paths.push(direct(system, &own("GPU memory by RDMA"), vendor, ucx));
        paths.push(Line::yes(own("through pinned host memory"), "wherever nothing faster works"));
    }
    paths
}

fn direct(system: &System, what: &str, vendor: Vendor, ucx: &Result<Ucx, String>) -> Line {
    let memory = vendor.memory();
    match ucx {
        Err(_) => Line::no(what, "UCX can't be used"),
        Ok(ucx) if !ucx.reaches.contains(&memory) => Line::no(
            what,
            format!("this UCX has no module for {}; install one built with it", memory.name()),
        ),
        Ok(_) => match system.rdma().reaches(vendor) {
            Ok(how) => Line::yes(what, format!("by UCX and {how}")),
            Err(why) => {
                Line::no(what, format!("{why}; coll_hetccl_gpu_path ucx uses UCX all the same"))
            }
        },
    }
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

fn print(report: &Report, out: &mut impl Write) -> std::io::Result<()> {
    writeln!(out, "Drivers")?;
    for driver in &report.drivers {
        let found = if driver.found { "yes" } else { "no " };
        writeln!(out, "  {found}  {:<10} {}", driver.vendor, driver.detail)?;
    }
    writeln!(out, "Devices")?;
    if report.devices.is_empty() {
        writeln!(out, "  none")?;
    }
    for device in &report.devices {
        writeln!(
            out,
            "  {} {}: {}, {}, PCI {}",
            device.vendor,
            device.number,
            device.name,
            mib(device.memory_bytes as u64),
            device.pci_bus_id
        )?;
        print_line(&device.large_bar, out)?;
    }
    if !report.libraries.is_empty() {
        writeln!(out, "Libraries for GPUs")?;
        report.libraries.iter().try_for_each(|line| print_line(line, out))?;
    }
    writeln!(out, "Network")?;
    print_line(&report.ucx, out)?;
    if report.nics.is_empty() {
        writeln!(out, "  no   RDMA devices: /sys/class/infiniband has none")?;
    }
    for nic in &report.nics {
        writeln!(out, "  yes  {}: {}", nic.name, nic.distances.join("; "))?;
    }
    writeln!(out, "Host")?;
    report.host.iter().try_for_each(|line| print_line(line, out))?;
    writeln!(out, "Ways for device buffers")?;
    report.paths.iter().try_for_each(|line| print_line(line, out))
}

fn print_line(line: &Line, out: &mut impl Write) -> std::io::Result<()> {
    let (answer, because) = if line.yes { ("yes", ": ") } else { ("no ", ", because ") };
    writeln!(out, "  {answer}  {}{because}{}", line.what, line.why)
}
