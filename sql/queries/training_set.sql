-- A training set: a heavy column and a label of one table. Stoker selects its rows without reading an image.
SELECT image, kind AS label FROM points WHERE note IS NOT NULL
