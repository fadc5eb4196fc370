"""Geometries: on the plane, in MongoDB's legacy coordinates, and on the sphere, in GeoJSON.

    geojson    parses values of documents and queries into `Geometry`: points, lines and polygons of numbers
    plane      $box, $center, $polygon, and distances between pairs of numbers
    sphere     shapes over S2 (the library that MongoDB itself uses): containment, intersection, distance;
               sphere_polygon, the polygons among them: small_polygon, those of S2 itself; large_polygon, those of so
               many corners that S2 would take too long in one call; ring_faults, what makes such a one invalid
    blocks     the parts of large shapes, in small indexes of S2, by cell
    coverings  S2 cells that cover shapes: the keys of a 2dsphere index, and the key ranges of a query
    geohash    points as interleaved bits: the keys of a 2d index, and the key ranges of a query
    nearness   distances from a point, and the key ranges within a distance; sphere_nearness, those on the sphere
    region     regions of `$geoWithin` and `$geoIntersects`; sphere_regions, those on the sphere
    library    whether S2's binding is installed

Knows nothing of filters, indexes and plans. `coverings` and the modules of the sphere import S2's binding, and are
therefore only imported within functions, at the first use of spherical geometry.
"""
