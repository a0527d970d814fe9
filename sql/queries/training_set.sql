-- A training set: heavy column, label and split of one table; streams without reading an image to select.
SELECT image, kind AS label FROM points WHERE note IS NOT NULL
