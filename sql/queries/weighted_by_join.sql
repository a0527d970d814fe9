-- A training set whose weights come from another table.
SELECT p.image, p.id, k.weight FROM points p JOIN kinds k ON p.kind = k.kind WHERE k.weight > 1
