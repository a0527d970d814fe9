//! Paths that files name.

use crate::path_inside;

#[test]
fn paths_stay_inside_their_folder() {
    for (path, inside) in
        [("a/b.jpg", "a/b.jpg"), ("./a//./b.jpg", "a/b.jpg"), ("..a/b..", "..a/b.."), ("", ""), (".", "")]
    {
        assert_eq!(path_inside(path).as_deref(), Ok(inside));
    }
    for path in ["/a", "\\a", "C:\\a", "c:a", "file:///a", "https://x/a"] {
        assert_eq!(path_inside(path), Err("is an absolute path; paths should be relative to the folder"), "{path}");
    }
    for path in ["..", "../a", "a/../b", "a/..", "a\\..\\b"] {
        assert_eq!(path_inside(path), Err("has .., and could leave the folder"), "{path}");
    }
}
