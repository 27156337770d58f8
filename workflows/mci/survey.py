"""Surveying an MCI: its records are compared with what the clouds report."""

from __future__ import annotations

import asyncio

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.mci.records import MciRecordActivities
    from activities.mci.survey import SurveyActivities
    from domain.mci.messages import SURVEY_VMS, SurveyPlace, SurveyReport, SurveyRequest
    from workflows.calls import run_local_activity, run_on_cloud_queue
    from workflows.mci.calls import PREPARE_TIMEOUT


@workflow.defn(name=SURVEY_VMS)
class SurveyVms:
    """Compares the records of an MCI with the clouds. Not an action: it takes no lock, and any action overrides it."""

    @workflow.run
    async def run(self, survey: SurveyRequest) -> SurveyReport:
        plan = await run_local_activity(MciRecordActivities.plan_survey, survey)
        asked = dict.fromkeys(chunk.placement for chunk in plan.chunks)
        places = plan.places if survey.reconcile else list(asked)
        looks = [
            SurveyPlace(survey=survey, place=place, chunks=[chunk for chunk in plan.chunks if chunk.placement == place])
            for place in places
        ]
        reports = await asyncio.gather(
            *(
                run_on_cloud_queue(SurveyActivities.survey_place, look, look.place, PREPARE_TIMEOUT, "survey")
                for look in looks
            )
        )
        report = SurveyReport(saved=plan.saved)
        for part in reports:
            report = report.sum_with(part)
        return report
