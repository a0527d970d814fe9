-- Which rows were added since version 1.
SELECT new.id FROM points new LEFT JOIN points AT (VERSION => 1) old ON new.id = old.id WHERE old.id IS NULL ORDER BY new.id
