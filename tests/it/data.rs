//! Data sets natively: loaders that fetch ahead, files of image sets, folders of images.

use gradloom::data::{Loader, cifar, mnist};
use gradloom::image_folder::{ImageFolder, decode};
use gradloom_core::io::HostTensor;
use gradloom_core::io::dataset::{Arrays, BatchOpts, Dataset};
use gradloom_core::io::images::Cifar;
use gradloom_core::{DType, Error, Result};
use std::path::Path;

const IMAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/images");

#[test]
fn a_loader_gives_every_batch_in_order() {
    let x = HostTensor::new(DType::U8, vec![10], (0..10).collect()).unwrap();
    let opts = BatchOpts { size: 3, shuffle: Some(5), drop_last: false };
    let loader = Loader::new(Arrays::new(vec![x]).unwrap(), opts);
    for epoch in 0..2 {
        let wanted = opts.epoch(10, epoch);
        let got: Vec<Vec<usize>> =
            loader.epoch(epoch).map(|b| b.unwrap()[0].data.iter().map(|&v| v as usize).collect()).collect();
        assert_eq!(got, wanted);
    }
    // leaving early ends the thread
    let mut few = loader.epoch(0);
    assert!(few.next().is_some());
    drop(few);
}

/// Fails, or panics, at the second batch.
struct Broken(bool);

impl Dataset for Broken {
    fn len(&self) -> usize {
        4
    }

    fn batch(&self, rows: &[usize]) -> Result<Vec<HostTensor>> {
        match rows {
            [0, ..] => Ok(Vec::new()),
            _ if self.0 => panic!("as the test wants"),
            _ => Err(Error::value("dataset", "broken")),
        }
    }
}

#[test]
fn what_goes_wrong_ahead_is_said() {
    let mut batches = Loader::new(Broken(false), BatchOpts::new(2)).epoch(0);
    assert!(batches.next().unwrap().is_ok());
    assert_eq!(batches.next().unwrap().unwrap_err().code(), "E_VALUE");
    assert!(batches.next().is_none());
    let mut batches = Loader::new(Broken(true), BatchOpts::new(2)).epoch(0);
    assert!(batches.next().unwrap().is_ok());
    let panic = batches.next().unwrap().unwrap_err();
    assert_eq!((panic.code(), panic.to_string().contains("as the test wants")), ("E_INTERNAL", true));
    assert!(batches.next().is_none());
}

#[test]
fn files_of_image_sets_are_read() {
    let folder = std::env::temp_dir().join(format!("gradloom-data-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let write = |name: &str, bytes: &[u8]| {
        std::fs::write(folder.join(name), bytes).unwrap();
        folder.join(name)
    };
    let images = write("images", &[&[0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2][..], &[1, 2, 3, 4]].concat());
    let labels = write("labels", &[0, 0, 8, 1, 0, 0, 0, 2, 7, 9]);
    let batch = mnist(&images, &labels).unwrap().batch(&[1]).unwrap();
    assert_eq!((batch[0].shape.clone(), batch[0].data.clone()), (vec![1, 1, 1, 2], vec![3, 4]));
    assert_eq!(batch[1].data, [9]);
    assert_eq!(mnist(&labels, &images).unwrap_err().code(), "E_VALUE");
    assert_eq!(mnist(&folder.join("none"), &labels).unwrap_err().code(), "E_INPUT");
    let one = write("one.bin", &[&[4][..], &[8; 3072]].concat());
    let set = cifar(&[&one, &one], Cifar::Ten).unwrap();
    assert_eq!((set.len(), set.batch(&[1]).unwrap()[1].data.clone()), (2, vec![4]));
    std::fs::remove_dir_all(&folder).unwrap();
}

fn expected() -> Vec<(String, usize, usize, Vec<u8>)> {
    let text = std::fs::read_to_string(format!("{IMAGES}/expected.txt")).unwrap();
    let byte = |s: &str, i: usize| u8::from_str_radix(&s[2 * i..2 * i + 2], 16).unwrap();
    let line = |l: &str| {
        let f: Vec<&str> = l.split('\t').collect();
        let pixels = (0..f[3].len() / 2).map(|i| byte(f[3], i)).collect();
        (f[0].to_string(), f[1].parse().unwrap(), f[2].parse().unwrap(), pixels)
    };
    text.lines().map(line).collect()
}

#[test]
fn images_decode_as_pillow_does() {
    let expected = expected();
    assert_eq!(expected.len(), 8);
    for (path, width, height, pixels) in expected {
        let file = std::fs::read(format!("{IMAGES}/{path}")).unwrap();
        let image = decode(&file).unwrap_or_else(|e| panic!("{path}: {e}"));
        assert_eq!((image.width, image.height), (width, height), "{path}");
        // decoders of JPEG round differently, and differ in how they enlarge colours
        let slack = if path.to_lowercase().ends_with("png") { 0 } else { 6 };
        let worst = image.pixels.iter().zip(&pixels).map(|(a, b)| a.abs_diff(*b)).max().unwrap();
        assert!(image.pixels.len() == pixels.len() && worst <= slack, "{path}: {worst}");
        for cut in [0, 1, 8, file.len() / 2] {
            let _ = decode(&file[..cut]);
        }
    }
    assert!(decode(b"").is_err() && decode(b"\x89PNG").is_err());
}

#[test]
fn folders_are_classes() {
    let set = ImageFolder::open(Path::new(IMAGES), 4, 4).unwrap();
    assert_eq!(set.classes, ["bird", "cat"]);
    assert_eq!(set.len(), 8);
    let all = set.batch(&(0..8).collect::<Vec<_>>()).unwrap();
    assert_eq!(all[0].shape, [8, 3, 4, 4]);
    let classes: Vec<u8> = all[1].data.chunks(8).map(|c| c[0]).collect();
    assert_eq!(classes, [0, 0, 0, 1, 1, 1, 1, 1]);
    // an image of the wanted size is not changed
    let set = ImageFolder::open(Path::new(IMAGES), 5, 5).unwrap();
    let at = 1;
    let image = set.batch(&[at]).unwrap().swap_remove(0).data;
    let (.., pixels) = expected().into_iter().find(|e| e.0 == "bird/palette.png").unwrap();
    assert_eq!(image[..25], pixels.iter().step_by(3).copied().collect::<Vec<_>>()[..]);
    assert_eq!(set.batch(&[8]).unwrap_err().code(), "E_VALUE");
    assert_eq!(ImageFolder::open(Path::new(&format!("{IMAGES}/cat")), 4, 4).err().unwrap().code(), "E_VALUE");
    assert_eq!(ImageFolder::open(Path::new(IMAGES), 0, 4).err().unwrap().code(), "E_VALUE");
}

#[test]
fn images_are_scaled_and_cut() {
    use gradloom::image_folder::Image;
    // 4 x 2, left half black, right half white
    let pixels: Vec<u8> = (0..8).flat_map(|i| [if i % 4 < 2 { 0 } else { 200 }; 3]).collect();
    let image = Image { width: 4, height: 2, pixels };
    // the middle square, as it is
    assert_eq!(image.covering(2, 2)[..4], [0, 200, 0, 200]);
    // one pixel: the mean of the middle
    assert_eq!(image.covering(1, 1), [100; 3]);
    assert_eq!(image.covering(1, 2)[..2], [29, 171]);
    let flat = Image { width: 3, height: 5, pixels: vec![77; 45] };
    assert!(flat.covering(9, 2).iter().all(|&p| p == 77));
}
