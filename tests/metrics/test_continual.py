import pytest

from ucb.metrics import AccuracyMatrix


@pytest.fixture
def matrix():
    found = AccuracyMatrix(before=[50.0, 60.0, 40.0], at_start=[50.0, 50.0, 45.0])
    for row in ([99.0], [95.0, 98.0], [90.0, 99.0, 97.0]):
        found.add(row)
    return found


def test_acc_and_bwt_by_hand(matrix):
    assert matrix.acc == pytest.approx((90 + 99 + 97) / 3)
    assert matrix.bwt == pytest.approx((-9 + 1 + 0) / 3)  # the paper's Eq. 8 counts the last task's 0
    assert matrix.bwt_n1 == pytest.approx((-9 + 1) / 2)
    assert matrix.forgetting == pytest.approx(((99 - 90) + (98 - 99)) / 2)
    assert matrix.forward_transfer == pytest.approx((10 - 5) / 2)
    assert matrix.learning == pytest.approx((99 + 98 + 97) / 3)


def test_forgetting_is_from_the_best_moment():
    found = AccuracyMatrix()
    for row in ([90.0], [95.0, 80.0], [85.0, 80.0, 70.0]):
        found.add(row)
    assert found.forgetting == pytest.approx(((95 - 85) + 0) / 2)


def test_one_task_forgets_nothing():
    found = AccuracyMatrix(before=[10.0], at_start=[10.0])
    found.add([99.0])
    assert (found.acc, found.bwt, found.bwt_n1, found.forgetting, found.forward_transfer) == (99.0, 0, 0, 0, 0)


def test_rows_that_do_not_fit_are_refused(matrix):
    with pytest.raises(ValueError, match="after task 4"):
        matrix.add([1.0, 2.0])
