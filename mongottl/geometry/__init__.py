"""Geometries: on the plane, in MongoDB's legacy coordinates, and on the sphere, in GeoJSON.

    geojson    values of documents and queries into `Geometry`: positions, lines and rings of numbers
    plane      $box, $center, $polygon, and distances between pairs of numbers
    sphere     shapes over S2 (the library behind MongoDB's own spherical geometry): what contains, meets, is how far;
               sphere_polygon, the polygons among them
    coverings  shapes into S2 cells: the keys of a 2dsphere index, and the ranges of a query
    geohash    points into interleaved bits: the keys of a 2d index, and the ranges of a query
    nearness   distances from a point, and the ranges to read for them; sphere_nearness, the same on the sphere
    region     what a query asks about, on the plane; sphere_regions, the same on the sphere
    library    whether S2's binding is installed

Knows nothing of filters, indexes and plans. `coverings` and the modules of the sphere import S2's binding, and are
therefore only imported within functions, at the first use of spherical geometry.
"""
