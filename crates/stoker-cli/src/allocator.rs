//! The allocator is mimalloc: glibc keeps the memory of short-lived reading threads in arenas, which grow for hours.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
