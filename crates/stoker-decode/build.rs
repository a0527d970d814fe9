//! Compiles the shim that calls libjpeg-turbo, which is loaded at run time. The build needs a C compiler, as other crates
//! of the workspace do, and no file of libjpeg-turbo.

fn main() {
    for file in ["abi62.h", "shim.h", "shim.c"] {
        println!("cargo::rerun-if-changed=src/turbo/{file}");
    }
    cc::Build::new().file("src/turbo/shim.c").std("c11").extra_warnings(true).compile("stoker_jpeg_shim");
}
