//! The allocator: glibc keeps the memory of short-lived reading threads in arenas that grow for hours.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
