//! The emulator of NVIDIA's driver, which is made for Linux.

/// Lets the device `cuda` find the emulator, which cargo builds beside this program. On other systems there is nothing to find.
pub(crate) fn load() {
    #[cfg(target_os = "linux")]
    {
        static LOADED: std::sync::Once = std::sync::Once::new();
        LOADED.call_once(|| {
            let program = std::env::current_exe().expect("this program has a path");
            let library = program.with_file_name("libgradloom_cuda.so");
            gradloom::cuda::use_library(&library).expect("the emulator loads");
        });
    }
}
