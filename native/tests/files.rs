//! Files that models and folders name: which are read, and that none of them can make a reader wait.

#![cfg(unix)]

mod common;

use common::{Scratch, in_time, make_pipe, model_with_data, weight};
use gradloom::io::HostTensor;
use gradloom::model::{DataFiles, parse_with};
use gradloom::{NativeHost, OnnxModel};
use std::path::Path;
use std::process::Command;

/// Runs `x + w` with `w` in the file, or says why not.
fn run(folder: &Path, location: &str, files: DataFiles) -> Result<Vec<f64>, String> {
    let path = folder.join("model.onnx");
    std::fs::write(&path, model_with_data("Add", location)).unwrap();
    in_time(move || {
        let model = parse_with(&path, &files).map_err(|e| e.to_string())?;
        let device = gradloom::open("eval", 1).unwrap();
        let mut model = OnnxModel::with_host(model, device, NativeHost::without_cache());
        let x = HostTensor::from_f32(vec![2], &[1.0, 2.0]).unwrap();
        model.run(&[("x", x)]).map(|out| out[0].1.to_f64()).map_err(|e| e.to_string())
    })
}

#[test]
fn weights_below_the_folder_are_read() {
    let dir = Scratch::new("beneath");
    dir.file("w.bin", &weight([10.0, 20.0]));
    dir.file("deeper/down/w.bin", &weight([30.0, 40.0]));
    assert_eq!(run(&dir.0, "w.bin", DataFiles::Beneath), Ok(vec![11.0, 22.0]));
    assert_eq!(run(&dir.0, "./w.bin", DataFiles::Beneath), Ok(vec![11.0, 22.0]));
    assert_eq!(run(&dir.0, "deeper/down/w.bin", DataFiles::Beneath), Ok(vec![31.0, 42.0]));
    let only = DataFiles::Only(vec!["./w.bin".into()]);
    assert_eq!(run(&dir.0, "w.bin", only.clone()), Ok(vec![11.0, 22.0]));
    let refused = run(&dir.0, "deeper/down/w.bin", only).unwrap_err();
    assert!(refused.contains("not among the files"), "{refused}");
}

#[test]
fn links_hidden_files_and_pipes_are_refused() {
    let dir = Scratch::new("refused");
    let outside = Scratch::new("outside");
    let secret = outside.file("secret", &weight([1.0, 2.0]));
    dir.file(".ssh/key", &weight([1.0, 2.0]));
    dir.file(".hidden", &weight([1.0, 2.0]));
    std::fs::hard_link(&secret, dir.0.join("hard")).unwrap();
    std::os::unix::fs::symlink(&secret, dir.0.join("soft")).unwrap();
    std::os::unix::fs::symlink(&outside.0, dir.0.join("folder")).unwrap();
    std::fs::create_dir(dir.0.join("sub")).unwrap();
    make_pipe(&dir.0.join("pipe"));
    let cases = [
        (".ssh/key", "hidden"),
        (".hidden", "hidden"),
        ("hard", "hard link"),
        ("soft", "external data"),
        ("folder/secret", "external data"),
        ("sub", "no regular file"),
        ("pipe", "no regular file"),
        ("missing", "external data"),
        ("../secret", "leaves"),
    ];
    for (location, why) in cases {
        let refused = run(&dir.0, location, DataFiles::Beneath).expect_err(location);
        assert!(refused.contains(why), "{location}: {refused}");
    }
    // what the caller names is trusted, but no reader waits
    for location in [".hidden", "hard", "soft"] {
        assert_eq!(run(&dir.0, location, DataFiles::Only(vec![location.into()])), Ok(vec![2.0, 4.0]), "{location}");
    }
    let refused = run(&dir.0, "pipe", DataFiles::Only(vec!["pipe".into()])).unwrap_err();
    assert!(refused.contains("no regular file"), "{refused}");
}

#[test]
fn the_command_line_names_allowed_files() {
    let dir = Scratch::new("named");
    dir.file(".w.bin", &weight([10.0, 20.0]));
    let model = dir.file("model.onnx", &model_with_data("Add", ".w.bin"));
    let gradloom = |more: &[&str]| {
        let mut c = Command::new(env!("CARGO_BIN_EXE_gradloom"));
        c.args(["kernels", "--no-cache", "--device", "null:wgsl"]).arg(&model).args(more).output().unwrap()
    };
    let refused = gradloom(&[]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("hidden"));
    assert!(gradloom(&["--data", ".w.bin"]).status.success());
}

#[test]
fn shards_that_are_pipes_are_errors() {
    let dir = Scratch::new("shards");
    make_pipe(&dir.0.join("a.safetensors"));
    let index = dir.file("m.safetensors.index.json", br#"{"weight_map":{"a":"a.safetensors"}}"#);
    let refused = in_time(move || {
        let session = gradloom::Session::new();
        gradloom::weights::load(&index, &session).map(|_| ()).unwrap_err().to_string()
    });
    assert!(refused.contains("no regular file"), "{refused}");
    let refused = in_time({
        let pipe = dir.0.join("a.safetensors");
        move || gradloom::weights::WeightFile::open(&pipe).map(|_| ()).unwrap_err().to_string()
    });
    assert!(refused.contains("no regular file"), "{refused}");
}

#[cfg(feature = "images")]
#[test]
fn folders_of_images_leave_out_what_is_hidden_and_wait_for_no_pipe() {
    use gradloom::image_folder::ImageFolder;
    use gradloom::io::dataset::Dataset;
    let dir = Scratch::new("images");
    dir.file(".checkpoints/x.png", b"");
    dir.file("cat/.x.png", b"");
    make_pipe(&dir.0.join("cat/y.png"));
    let images = ImageFolder::open(&dir.0, 2, 2).unwrap();
    assert_eq!((images.classes.as_slice(), images.len()), (&["cat".to_string()][..], 1));
    let refused = in_time(move || images.batch(&[0]).unwrap_err().to_string());
    assert!(refused.contains("no regular file"), "{refused}");
}
