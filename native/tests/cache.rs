//! The cache on disk as processes see it: a second start compiles nothing, damage and rivals do no harm.

#![cfg(all(unix, target_arch = "x86_64"))]

mod common;

use common::{in_time, make_pipe};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cache-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Folder(path)
    }

    fn files(&self) -> Vec<PathBuf> {
        let mut files: Vec<_> = std::fs::read_dir(&self.0).unwrap().flatten().map(|e| e.path()).collect();
        files.sort();
        files
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn start(folder: &Path, out: &Path, device: &str) -> Child {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/models/magika");
    Command::new(env!("CARGO_BIN_EXE_gradloom"))
        .args(["bench", "--json", "--runs", "1", "--warmup", "0", "--device", device, "--threads", "2"])
        .arg(model.join("model.onnx"))
        .arg("--inputs")
        .arg(model.join("input.npz"))
        .arg("--cache-dir")
        .arg(folder)
        .stdout(std::fs::File::create(out).unwrap())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

/// Fields of the report of one run.
struct Report(String);

impl Report {
    fn count(&self, field: &str) -> usize {
        let (_, rest) = self.0.split_once(&format!("\"{field}\":")).unwrap_or_else(|| panic!("{field} in {}", self.0));
        let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap()
    }
}

fn bench(folder: &Folder, device: &str) -> Report {
    let out = folder.0.with_extension("json");
    assert!(start(&folder.0, &out, device).wait().unwrap().success());
    let text = std::fs::read_to_string(&out).unwrap();
    std::fs::remove_file(out).unwrap();
    Report(text)
}

#[test]
fn a_second_start_compiles_nothing() {
    let folder = Folder::new("second");
    let cold = bench(&folder, "cpu");
    assert!(cold.count("compiled") > 5 && cold.count("cache_hits") == 0);
    let warm = bench(&folder, "cpu");
    assert_eq!((warm.count("compiled"), warm.count("cache_misses")), (0, 0), "{}", warm.0);
    assert!(warm.count("cache_hits") > cold.count("compiled"));
    // Another target shares nothing. `cpu:avx2` would be no other target on a processor without AVX-512.
    let other = bench(&folder, "null:wasm");
    assert!(other.count("compiled") > 5 && other.count("cache_hits") == 0, "{}", other.0);
}

#[test]
fn damaged_entries_are_made_again() {
    let folder = Folder::new("damaged");
    let cold = bench(&folder, "cpu");
    for (i, file) in folder.files().iter().enumerate() {
        let mut bytes = std::fs::read(file).unwrap();
        match i % 3 {
            0 => bytes.truncate(bytes.len() / 2),
            1 => bytes.last_mut().into_iter().for_each(|b| *b ^= 1),
            _ => bytes.clear(),
        }
        std::fs::write(file, bytes).unwrap();
    }
    let again = bench(&folder, "cpu");
    assert_eq!((again.count("compiled"), again.count("cache_hits")), (cold.count("compiled"), 0));
    assert_eq!(bench(&folder, "cpu").count("compiled"), 0);
}

/// One run with its outputs compared, whatever state the folder is in; with what it said.
fn right(folder: &Path, prefix: &[&str]) -> (Report, String) {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/models/magika");
    let mut c = match prefix {
        [] => Command::new(env!("CARGO_BIN_EXE_gradloom")),
        [shell, rest @ ..] => {
            let mut c = Command::new(shell);
            c.args(rest).arg(env!("CARGO_BIN_EXE_gradloom"));
            c
        }
    };
    c.args(["bench", "--json", "--runs", "1", "--warmup", "0", "--device", "cpu", "--threads", "2"]);
    c.arg(model.join("model.onnx")).arg("--inputs").arg(model.join("input.npz"));
    c.arg("--expect").arg(model.join("expected.npz")).arg("--cache-dir").arg(folder);
    let out = in_time(move || c.output().unwrap());
    let (text, said) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{said}");
    let (_, relerr) = text.split_once("\"relerr\":").unwrap();
    let relerr: f64 = relerr.split(',').next().unwrap().trim().parse().unwrap();
    assert!(relerr < 1e-3, "{relerr}");
    (Report(text.clone().into_owned()), said.into_owned())
}

#[test]
fn hostile_entries_are_made_again() {
    let folder = Folder::new("hostile");
    let cold = bench(&folder, "cpu");
    let files = folder.files();
    let beside = folder.0.with_extension("beside");
    std::fs::create_dir_all(&beside).unwrap();
    let first = std::fs::read(&files[0]).unwrap();
    for (i, file) in files.iter().enumerate() {
        let away = beside.join(format!("{i}"));
        match i % 5 {
            0 => std::fs::hard_link(file, &away).unwrap(),
            1 => {
                std::fs::rename(file, &away).unwrap();
                symlink(&away, file).unwrap();
            }
            2 => {
                std::fs::remove_file(file).unwrap();
                make_pipe(file);
            }
            // well formed, but another's
            3 => std::fs::write(file, &first).unwrap(),
            _ => {
                if let Err(e) = chown(file, Some(12_345), None) {
                    eprintln!("an entry of another user was not tried ({e}): root can make one");
                    std::fs::remove_file(file).unwrap();
                }
            }
        }
    }
    let (again, _) = right(&folder.0, &[]);
    assert_eq!((again.count("compiled"), again.count("cache_hits")), (cold.count("compiled"), 0));
    assert_eq!(bench(&folder, "cpu").count("compiled"), 0, "they were replaced");
    std::fs::remove_dir_all(&beside).unwrap();
}

#[test]
fn a_folder_that_others_may_write_is_not_used() {
    let folder = Folder::new("open");
    let cold = bench(&folder, "cpu");
    std::fs::set_permissions(&folder.0, std::fs::Permissions::from_mode(0o777)).unwrap();
    let (run, said) = right(&folder.0, &[]);
    assert_eq!((run.count("compiled"), run.count("cache_hits")), (cold.count("compiled"), 0));
    let said: Vec<&str> = said.lines().filter(|l| l.contains("no cache")).collect();
    assert!(said.len() == 1 && said[0].contains("other users may write to"), "{said:?}");
    std::fs::set_permissions(&folder.0, std::fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(right(&folder.0, &[]).0.count("compiled"), 0);
}

#[test]
fn writes_that_fail_leave_nothing_and_do_no_harm() {
    let folder = Folder::new("full");
    // files end after half a kilobyte, as on a disk that is full
    let full = ["sh", "-c", "trap '' XFSZ; ulimit -f 1; exec \"$@\"", "sh"];
    right(&folder.0, &full);
    let left = folder.files();
    assert!(left.iter().all(|f| !f.to_string_lossy().contains("tmp-")), "{left:?}");
    assert!(left.iter().all(|f| std::fs::metadata(f).unwrap().len() <= 1024));
    assert!(right(&folder.0, &[]).0.count("compiled") > 0);
    assert_eq!(right(&folder.0, &[]).0.count("compiled"), 0);
}

#[test]
fn processes_share_a_folder() {
    let folder = Folder::new("shared");
    let outs: Vec<PathBuf> = (0..4).map(|i| folder.0.with_extension(format!("{i}"))).collect();
    let runs: Vec<Child> = outs.iter().map(|out| start(&folder.0, out, "cpu")).collect();
    for mut run in runs {
        assert!(run.wait().unwrap().success());
    }
    outs.iter().for_each(|out| std::fs::remove_file(out).unwrap());
    assert_eq!(bench(&folder, "cpu").count("compiled"), 0);
    let left: Vec<_> = folder.files().into_iter().filter(|f| f.to_string_lossy().contains("tmp-")).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Tunes, and runs what came of it in another process.
fn tunes(device: &str) {
    let folder = Folder::new(&format!("tuned-{device}"));
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/models/zoo_t5_encoder");
    let gradloom = |command: &str, more: &[&str]| {
        let mut c = Command::new(env!("CARGO_BIN_EXE_gradloom"));
        c.args([command, "--json", "--device", device, "--threads", "1"]).args(more).arg(model.join("model.onnx"));
        c.arg("--inputs").arg(model.join("input.npz")).arg("--cache-dir").arg(&folder.0);
        let out = c.output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        Report(String::from_utf8_lossy(&out.stdout).into_owned())
    };
    // without time, one candidate of one kernel is tried: what is left over ends, whatever it costs
    let none = gradloom("tune", &["--budget", "0"]);
    assert_eq!((none.count("kernels"), none.count("tried")), (1, 1), "{}", none.0);
    let tuned = gradloom("tune", &["--budget", "3"]);
    assert!(tuned.count("kernels") > 0, "{}", tuned.0);
    assert!(!tuned.0.contains("\"wrong\": 1") && !tuned.0.contains("\"wrong\":1"), "{}", tuned.0);
    let expected = model.join("expected.npz");
    let run = gradloom("bench", &["--runs", "1", "--expect", expected.to_str().unwrap()]);
    assert_eq!(run.count("compiled"), 0, "{}", run.0);
    let (_, relerr) = run.0.split_once("\"relerr\":").unwrap();
    let relerr: f64 = relerr.split(',').next().unwrap().trim().parse().unwrap();
    assert!(relerr < 1e-3, "{relerr}");
}

#[test]
fn tuned_kernels_are_right_and_kept() {
    tunes("cpu");
}

#[test]
fn tuned_kernels_of_the_c_compiler_are_right_and_kept() {
    tunes("c");
}

#[test]
#[cfg(feature = "wgpu")]
fn tuned_kernels_of_gpus_are_right_and_kept() {
    tunes("wgpu");
}

#[test]
fn opts_that_are_brought_along_are_used() {
    let folder = Folder::new("brought");
    std::fs::create_dir_all(&folder.0).unwrap();
    let (file, model) =
        (folder.0.join("opts.txt"), Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/models/hibari_oov"));
    let gradloom = |command: &str, more: &[&str]| {
        let mut c = Command::new(env!("CARGO_BIN_EXE_gradloom"));
        c.args([command, "--no-cache", "--device", "cpu", "--threads", "1"]).args(more).arg(model.join("model.onnx"));
        c.arg("--inputs").arg(model.join("input.npz")).output().unwrap()
    };
    let tuned = String::from_utf8(gradloom("tune", &["--json", "--budget", "0"]).stdout).unwrap();
    let key: String =
        tuned.split_once("\"line\"").unwrap().1.chars().skip_while(|c| !c.is_ascii_hexdigit()).take(16).collect();
    // as if nothing had been the best for this kernel
    std::fs::write(&file, format!("# by hand\n{key}\n")).unwrap();
    let with = ["--tuned", file.to_str().unwrap()];
    let (usual, brought) = (gradloom("kernels", &[]), gradloom("kernels", &with));
    assert!(usual.status.success() && brought.status.success());
    assert_ne!(usual.stdout, brought.stdout);
    let expected = model.join("expected.npz");
    let run =
        gradloom("bench", &[&with[..], &["--json", "--runs", "1", "--expect", expected.to_str().unwrap()]].concat());
    let run = String::from_utf8(run.stdout).unwrap();
    let relerr = run.split_once("\"relerr\":").unwrap().1.split(',').next().unwrap().trim();
    assert!(relerr.parse::<f64>().unwrap() < 1e-3, "{run}");
    std::fs::write(&file, "unknown words\n").unwrap();
    let bad = gradloom("kernels", &with);
    assert_eq!(bad.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&bad.stderr).contains("line 1"));
}
