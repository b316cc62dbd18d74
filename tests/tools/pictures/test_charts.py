from __future__ import annotations

from triolog.tools.pictures.charts import HEIGHT, LEFT, MOST_BARS, MOST_POINTS, WIDTH, Bar, bar_picture, curve_picture

from tests.support.drawings import SVG, Drawing


def curve(drawing: Drawing) -> list[tuple[float, ...]]:
    (path,) = (each for each in drawing.root.iter(f"{SVG}path") if each.get("class") == "curve")
    return [tuple(map(float, place.split())) for place in path.get("d", "").removeprefix("M").split("L")]


def test_a_curve_goes_from_corner_to_corner_and_tells_what_happened() -> None:
    points = [(0.0, 0.0), (1.0, 400.0), (4.0, 1000.0)]
    drawing = Drawing(curve_picture("Acknowledged", points, [(1.0, "SIGKILL")], across="seconds", up="records").markup())
    (x, below), (middle, _), (right, top) = curve(drawing)
    assert (x, right, below - top) == (LEFT, LEFT + WIDTH, HEIGHT)
    assert middle == LEFT + WIDTH / 4
    assert {"Acknowledged", "SIGKILL", "seconds", "records", "0", "1,000", "4"} <= set(drawing.texts)
    assert "SIGKILL at 1.00." in drawing.description


def test_a_curve_of_many_points_or_of_none_is_drawn() -> None:
    many = [(float(number), float(number)) for number in range(100_000)]
    assert len(curve(Drawing(curve_picture("a", many, [], across="s", up="n").markup()))) <= MOST_POINTS
    Drawing(curve_picture("a", [], [(1.0, "b")], across="s", up="n").markup())
    Drawing(curve_picture("a", [(0.0, 0.0)], [], across="s", up="n").markup())


def test_bars_are_as_high_as_their_values_and_bounded() -> None:
    bars = [Bar("05", 10, "10 flights"), Bar("06", 40, "40 flights"), Bar("07", 0, "none")]
    drawing = Drawing(bar_picture("Departures", bars, up="flights").markup())
    assert [height for _, _, _, height in drawing.rects("log")] == [HEIGHT / 4, HEIGHT, 0]
    assert drawing.hints == ["05: 10 flights", "06: 40 flights", "07: none"]
    bars = [Bar(str(number), number, "") for number in range(1000)]
    assert len(Drawing(bar_picture("a", bars, up="n").markup()).rects("log")) == MOST_BARS
    Drawing(bar_picture("a", [], up="n").markup())
