"""Hijri dates beside Gregorian ones, by the Umm al-Qura calendar (hijridate: 1343–1500 AH, 1924–2077)."""

from __future__ import annotations

from datetime import date

import hijridate

MONTHS_AR = (
    "محرم",
    "صفر",
    "ربيع الأول",
    "ربيع الآخر",
    "جمادى الأولى",
    "جمادى الآخرة",
    "رجب",
    "شعبان",
    "رمضان",
    "شوال",
    "ذو القعدة",
    "ذو الحجة",
)


def hijri(day: date, language: str) -> str | None:
    """A Gregorian date as `11 جمادى الآخرة 1448` or `11 Jumada al-Thani 1448`; None outside the calendar's range."""
    try:
        converted = hijridate.Gregorian.fromdate(day).to_hijri()
    except OverflowError:
        return None
    month = MONTHS_AR[converted.month - 1] if language == "ar" else converted.month_name("en")
    return f"{converted.day} {month} {converted.year}"
